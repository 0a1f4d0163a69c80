// What is wrong with how a page looks: run in the page, with the least contrast of texts and of hints.
const [least, least_of_hints] = arguments, found = [];
const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const rgba = (color) => {
  pen.clearRect(0, 0, 1, 1);
  pen.fillStyle = color;
  pen.fillRect(0, 0, 1, 1);
  return [...pen.getImageData(0, 0, 1, 1).data];
};
const light = ([r, g, b]) => {
  const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const [x, y, z] = [r, g, b].map((c) => linear(c / 255));
  return 0.2126 * x + 0.7152 * y + 0.0722 * z;
};
const ground = (node) => {
  for (; node; node = node.parentElement) {
    const color = rgba(getComputedStyle(node).backgroundColor);
    if (color[3] > 250) return color;
  }
  return rgba(getComputedStyle(document.documentElement).getPropertyValue("--ground") || "Canvas");
};
const contrast = (one, other) => {
  const [a, b] = [light(one), light(other)];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
};
const name = (node) => `${node.tagName} ${node.id || node.className} ${JSON.stringify(node.textContent.slice(0, 30))}`;

const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const node = walk.currentNode.parentElement;
  if (!walk.currentNode.data.trim() || !node.checkVisibility() || node.closest("script, option, template")) continue;
  const ratio = contrast(rgba(getComputedStyle(node).color), ground(node));
  if (ratio < least) found.push(`contrast ${ratio.toFixed(1)}: ${name(node)}`);
}
for (const field of document.querySelectorAll("input[placeholder]")) {
  if (!field.checkVisibility()) continue;
  const ratio = contrast(rgba(getComputedStyle(field, "::placeholder").color), ground(field));
  if (ratio < least_of_hints) found.push(`contrast ${ratio.toFixed(1)} of the hint ${field.placeholder}`);
}
for (const node of document.querySelectorAll("button, input, select, a, th")) {
  if (!node.checkVisibility() || node.closest("dialog")) continue;
  if (["BUTTON", "A"].includes(node.tagName) && node.scrollWidth > node.clientWidth + 1)
    found.push(`cut off: ${name(node)}`);
  node.scrollIntoView({ block: "center", inline: "center" });
  const box = node.getBoundingClientRect();
  const top = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
  if (!top || !(node === top || node.contains(top))) found.push(`covered: ${name(node)} by ${top && name(top)}`);
}
scrollTo(0, 0);
const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
if (wide > 0) found.push(`${wide} px stick out at the right`);
return found;
