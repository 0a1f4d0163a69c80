// Lines over the last minutes on a canvas. `marks` are moments shown as vertical lines.

const SPAN_MS_MIN = 30_000, SPAN_MS_MAX = 5 * 60_000;

export function short(number) {
  if (number === null || number === undefined) return "-";
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (number >= size) return (number / (unit === "k" ? 1e3 : size)).toFixed(1) + unit;
  }
  return Number.isInteger(number) ? String(number) : number.toFixed(1);
}

// What a custom property means here, with light and dark resolved.
function color(canvas, name) {
  canvas.style.color = `var(${name})`;
  return getComputedStyle(canvas).color;
}

export function draw(canvas, points, series, marks) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  const now = points.length ? points[points.length - 1].at_ms : Date.now();
  const known_ms = points.length ? now - points[0].at_ms : 0;
  const span_ms = Math.min(SPAN_MS_MAX, Math.max(SPAN_MS_MIN, known_ms));
  const shown = points.filter((point) => point.at_ms >= now - span_ms);
  const top = Math.max(1, ...shown.flatMap((point) => series.map((one) => point[one.name])));
  const x = (at_ms) => width * (1 - (now - at_ms) / span_ms);
  const y = (value) => height - 2 - (height - 16) * (value / top);

  pen.strokeStyle = color(canvas, "--mark");
  for (const at_ms of marks) {
    pen.beginPath();
    pen.moveTo(x(at_ms), 0);
    pen.lineTo(x(at_ms), height);
    pen.stroke();
  }
  for (const one of series) {
    pen.strokeStyle = color(canvas, one.color);
    pen.lineWidth = 1.5;
    pen.beginPath();
    shown.forEach((point, index) => {
      const move = index ? pen.lineTo : pen.moveTo;
      move.call(pen, x(point.at_ms), y(point[one.name]));
    });
    pen.stroke();
  }
  pen.fillStyle = color(canvas, "--dim");
  pen.font = "11px system-ui, sans-serif";
  pen.fillText(short(top), 3, 11);
  pen.textAlign = "right";
  pen.fillText(`last ${Math.round(span_ms / 1000)} s`, width - 3, 11);
}
