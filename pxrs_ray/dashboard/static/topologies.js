// Which topology the page shows, and a choice of all that there are. The address of the page says which:
// a link to it, a reload and the way back keep it.

let topology = new URLSearchParams(location.search).get("topology") || "";

// The token came with the first link, and is a cookie from now on: no address that people copy has it.
export function asked_for() {
  if (location.search.includes("token=")) history.replaceState(null, "", link(topology));
}

// The server has chosen where nobody said which.
export function shown_now(name) {
  if (topology === name) return;
  topology = name;
  history.replaceState(null, "", link(name));
}

function link(name) {
  return name ? `./?${new URLSearchParams({ topology: name })}` : "./";
}

// Where to ask the server for something of this topology.
export function address(path, parameters = {}) {
  return `${path}?${new URLSearchParams({ ...parameters, topology })}`;
}

// `glances`: each topology with how it is, in a word.
export function show_topologies(glances) {
  const nav = document.querySelector("#topologies");
  nav.hidden = glances.length < 2;
  while (nav.children.length > glances.length) nav.lastChild.remove();
  glances.forEach((glance, index) => {
    let item = nav.children[index];
    if (!item) {
      item = nav.appendChild(document.createElement("a"));
      item.append(document.createElement("span"), document.createElement("small"));
    }
    const [name, words] = item.children;
    if (name.textContent !== glance.topology) name.textContent = glance.topology;
    const told = glance.words || "\u2026";
    if (words.textContent !== told) words.textContent = told;
    words.className = `state ${glance.tone || "dim"}`;
    const to = link(glance.topology);
    if (item.getAttribute("href") !== to) item.setAttribute("href", to);
    if (glance.topology === topology) item.setAttribute("aria-current", "page");
    else item.removeAttribute("aria-current");
  });
}
