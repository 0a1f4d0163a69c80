// Lines over the last minutes on a canvas, with scales. `marks` are moments shown as vertical lines;
// where the pointer is, the values of that moment are told.

const SPAN_MS_MIN = 30_000, SPANS = { most_ms: 5 * 60_000 };

// Let people choose how far back the charts go.
export function follow_span(select) {
  select.addEventListener("change", () => {
    SPANS.most_ms = Number(select.value) * 60_000;
    for (const canvas of document.querySelectorAll("canvas")) {
      if (canvas.drawn) draw(canvas, ...canvas.drawn);
    }
  });
}

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

const LEFT = 44, BELOW = 16, ABOVE = 6;

// The round number that is just not below: 1, 2 or 5 times a power of ten.
function round_up(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, value)));
  return [1, 2, 5, 10].map((step) => step * power).find((each) => each >= value);
}

function ago(ms) {
  if (ms < 500) return "now";
  return ms < 120_000 ? `-${Math.round(ms / 1000)} s` : `-${Math.round(ms / 60_000)} min`;
}

export function draw(canvas, points, series, marks) {
  canvas.drawn = [points, series, marks];
  if (!canvas.followed) {
    canvas.followed = true;
    canvas.addEventListener("pointermove", (event) => {
      canvas.at_x = event.offsetX;
      draw(canvas, ...canvas.drawn);
    });
    canvas.addEventListener("pointerleave", () => {
      canvas.at_x = undefined;
      draw(canvas, ...canvas.drawn);
    });
  }
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.font = "11px system-ui, sans-serif";
  const now = points.length ? points[points.length - 1].at_ms : Date.now();
  const known_ms = points.length ? now - points[0].at_ms : 0;
  const span_ms = Math.min(SPANS.most_ms, Math.max(SPAN_MS_MIN, known_ms));
  const shown = points.filter((point) => point.at_ms >= now - span_ms);
  const top = round_up(Math.max(1, ...shown.flatMap((point) => series.map((one) => point[one.name]))));
  const right = width - 6, bottom = height - BELOW;
  const x = (at_ms) => right - (right - LEFT) * (now - at_ms) / span_ms;
  const y = (value) => bottom - (bottom - ABOVE) * (value / top);
  const line = (from_x, from_y, to_x, to_y) => {
    pen.beginPath();
    pen.moveTo(from_x, from_y);
    pen.lineTo(to_x, to_y);
    pen.stroke();
  };

  pen.textBaseline = "middle";
  for (const part of [0, 0.5, 1]) {
    pen.strokeStyle = color(canvas, "--line");
    line(LEFT, y(top * part), right, y(top * part));
    pen.fillStyle = color(canvas, "--dim");
    pen.textAlign = "right";
    pen.fillText(short(top * part), LEFT - 4, y(top * part));
  }
  pen.textBaseline = "bottom";
  for (const part of [1, 0.5, 0]) {
    pen.textAlign = part === 0 ? "right" : part === 1 ? "left" : "center";
    pen.fillText(ago(span_ms * part), x(now - span_ms * part), height - 1);
  }
  pen.strokeStyle = color(canvas, "--mark");
  for (const at_ms of marks.filter((each) => each >= now - span_ms)) line(x(at_ms), ABOVE, x(at_ms), bottom);
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
  if (canvas.at_x === undefined || !shown.length) return;
  const far = (point) => Math.abs(x(point.at_ms) - canvas.at_x);
  const near = shown.reduce((best, point) => (far(point) < far(best) ? point : best));
  const told = `${new Date(near.at_ms).toLocaleTimeString()}  ` +
    series.map((one) => `${one.name} ${short(near[one.name])}`).join(", ");
  canvas.dataset.told = told;
  pen.lineWidth = 1;
  pen.strokeStyle = color(canvas, "--ink");
  line(x(near.at_ms), ABOVE, x(near.at_ms), bottom);
  const told_width = pen.measureText(told).width + 8;
  const told_x = Math.max(LEFT, Math.min(right - told_width, x(near.at_ms) - told_width / 2));
  pen.fillStyle = color(canvas, "--ground");
  pen.fillRect(told_x, ABOVE, told_width, 15);
  pen.fillStyle = color(canvas, "--ink");
  pen.textAlign = "left";
  pen.textBaseline = "top";
  pen.fillText(told, told_x + 4, ABOVE + 2);
}
