// The live page: draws each picture that the server sends. No state but what is on the page.

import { draw, follow_span, short } from "./charts.js";
import { aside, messages, queues } from "./messages.js";
import { address, asked_for, show_topologies, shown_now } from "./topologies.js";

const LARGE_MAX = 32, MEDIUM_MAX = 256, POINTS_MAX = 4000;
const views = new Map();   // group name -> { root, cells, points, chosen }
let past = {}, seen_ms = 0, drawn = false;

const find = (root, selector) => root.querySelector(selector);
const time = (at_ms) => new Date(at_ms).toLocaleTimeString();

function set(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function size(bytes) {
  let unit = 0;
  for (; bytes >= 1000 && unit < 4; unit++) bytes /= 1000;
  return `${bytes.toFixed(unit ? 1 : 0)} ${["B", "kB", "MB", "GB", "TB"][unit]}`;
}

function span(ms) {
  if (ms === null || ms === undefined) return "-";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  return ms < 120000 ? `${(ms / 1000).toFixed(1)} s` : `${Math.round(ms / 60000)} min`;
}

// Neighbouring owners get colours far apart: each is a golden angle further.
const hue = (owner) => (owner * 137.5 + 205) % 360;

// What a table is sorted by: a click on a head sorts, another one turns it round, a third forgets.
// `items` as they are to be shown; `cells` says what stands in the columns of one.
function in_order(table, items, cells) {
  if (!table.heads) {
    table.heads = [...table.tHead.rows[0].cells].filter((each) => each.tagName === "TH" && each.textContent);
    for (const head of table.heads) {
      head.tabIndex = 0;
      head.title = "sort";
      const turn = () => {
        const was = head.ariaSort;
        for (const each of table.heads) each.ariaSort = null;
        head.ariaSort = was === "descending" ? "ascending" : was === "ascending" ? null : "descending";
        table.again();
      };
      head.addEventListener("click", turn);
      head.addEventListener("keydown", (event) => { if (event.key === "Enter") turn(); });
    }
  }
  const by = table.heads.find((each) => each.ariaSort);
  if (!by) return items;
  const sign = by.ariaSort === "ascending" ? 1 : -1, column = by.cellIndex;
  const value = (item) => cells(item)[column];
  return [...items].sort((one, other) => {
    const [a, b] = [value(one), value(other)];
    if (typeof a === "number" && typeof b === "number") return sign * (a - b);
    return sign * String(a ?? "").localeCompare(String(b ?? ""), undefined, { numeric: true });
  });
}

function rows(body, wanted) {
  while (body.rows.length > wanted.length) body.deleteRow(-1);
  wanted.forEach((cells, index) => {
    const row = body.rows[index] || body.insertRow();
    cells.forEach((text, column) => {
      const cell = row.cells[column] || row.insertCell();
      set(cell, String(text ?? "-"));
    });
  });
}

function view(group) {
  if (!views.has(group.group)) {
    const root = find(document, "#group").content.firstElementChild.cloneNode(true);
    root.dataset.group = group.group;
    set(find(root, ".name"), group.group);
    find(root, ".count").value = group.wanted;
    for (const button of root.querySelectorAll("button[data-action]")) {
      button.addEventListener("click", () => ask(group.group, button.dataset.action, root));
    }
    find(root, "[data-look=aside]").addEventListener("click", () =>
      aside(group.group, root, act));
    for (const [what, action] of [["letters", "retry_letters"], ["keys", "retry_keys"]]) {
      find(root, `[data-again=${what}]`).addEventListener("click", async () => {
        if (await act(action, group.group, null)) aside(group.group, root, act);
      });
    }
    find(document, "#groups").append(root);
    views.set(group.group, { root, cells: [], points: past[group.group] || [], chosen: -1 });
  }
  return views.get(group.group);
}

function show_group(group) {
  const { root, points } = view(group);
  set(find(root, ".state"), group.state);
  find(root, ".state").className = `state ${group.tone}`;
  set(find(root, ".facts"), `${group.working} of ${group.wanted} consumers, queue ${group.queue}, ` +
    `${group.assignor}, generation ${group.generation}, version ${group.version}`);
  show_why(find(root, ".why"), group.why);
  const given_up = [group.given_up && `${short(group.given_up)} given up`,
    group.aside && `${short(group.aside)} keys in quarantine`].filter(Boolean);
  set(find(root, "[data-look=aside]"), given_up.join(", ") || "Given up");
  if (points.at(-1)?.at_ms !== group.point.at_ms) points.push(group.point);
  if (points.length > POINTS_MAX) points.shift();
  set(find(root, ".lag"), `${short(group.lag)} messages, ${span(group.lag_ms)} behind`);
  set(find(root, ".consumed"), short(group.point.consumed));
  set(find(root, ".produced"), short(group.point.produced));
  const marks = group.events.map((event) => event.at_ms);
  draw(find(root, ".lag-chart"), points, [{ name: "lag", color: "--lag" }], marks);
  draw(find(root, ".rate-chart"), points,
    [{ name: "produced", color: "--produced" }, { name: "consumed", color: "--consumed" }], marks);
  show_map(group);
  show_consumers(find(root, ".consumers tbody"), group);
  show_events(find(root, ".events"), group.events);
}

// What is wrong with it, in words, beside its state.
function show_why(list, why) {
  list.hidden = !why.length;
  while (list.children.length > why.length) list.lastChild.remove();
  why.forEach((each, index) => {
    const item = list.children[index] || list.appendChild(document.createElement("li"));
    item.className = each.severity;
    set(item, each.text);
  });
}

function show_map(group) {
  const one = view(group), map = find(one.root, ".map");
  one.group = group;
  const { owner, lag, problem } = group.partitions;
  if (one.cells.length !== owner.length) {
    map.className = "map " + (owner.length <= LARGE_MAX ? "large" :
      owner.length <= MEDIUM_MAX ? "medium" : "small");
    map.replaceChildren(...owner.map((_, number) => {
      const cell = document.createElement("div");
      cell.setAttribute("role", "listitem");
      cell.tabIndex = number ? -1 : 0;  // one stop of the Tab key; arrows go on from there
      const choose = () => { one.chosen = number; show_chosen(one.group, one); };
      cell.addEventListener("click", choose);
      cell.addEventListener("focus", choose);
      cell.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1, Home: -number, End: owner.length }[event.key];
        if (step === undefined) return;
        event.preventDefault();
        one.cells[Math.max(0, Math.min(owner.length - 1, number + step))].focus();
      });
      return cell;
    }));
    one.cells = [...map.children];
  }
  const most = Math.max(10, ...lag.map((each) => each || 0));
  owner.forEach((index, number) => {
    const cell = one.cells[number], behind = lag[number] || 0;
    const kind = problem[number]?.[0] ?? (index < 0 ? "unowned" : "owned");
    if (cell.className !== kind) cell.className = kind;
    cell.style.setProperty("--hue", hue(index));
    const filled = behind ? 15 + 85 * Math.log1p(behind) / Math.log1p(most) : 0;
    cell.style.setProperty("--filled", `${filled.toFixed(0)}%`);
    if (owner.length <= LARGE_MAX) {
      set(cell, `P${number}\n${index < 0 ? "no owner" : group.consumers[index].member}\n${short(behind)}`);
    } else if (owner.length <= MEDIUM_MAX) {
      set(cell, String(number));
    }
    cell.title = facts(group, number);
  });
  show_chosen(group, one);
}

function facts(group, number) {
  const { owner, phase, epoch, checkpoint, lag, lag_ms, problem } = group.partitions;
  const who = owner[number] < 0 ? "no owner" : group.consumers[owner[number]].member;
  return `P${number}: ${who} (${phase[number]}), epoch ${epoch[number]}, checkpoint ` +
    `${checkpoint[number]}, lag ${short(lag[number])}, ${span(lag_ms[number])} behind` +
    (problem[number] ? `, ${problem[number][0].toUpperCase()}: ${problem[number][1]}` : "");
}

function show_chosen(group, one) {
  set(find(one.root, ".chosen"), one.chosen < 0 ? "" : facts(group, one.chosen));
}

function show_consumers(body, group) {
  const table = body.parentElement;
  table.again = () => show_consumers(body, group);
  const sorted = in_order(table, group.consumers, (c) =>
    ["", `${c.member}#${c.incarnation}`, c.state, c.partitions, c.lag, c.processed, c.pid, "", c.now]);
  rows(body, sorted.map((c) => ["", `${c.member}#${c.incarnation}`, c.state, c.partitions,
    short(c.lag), c.processed === null ? null : short(c.processed), c.pid]));
  sorted.forEach((consumer, index) => {
    const row = body.rows[index];
    row.cells[0].className = "owner";
    row.cells[0].style.setProperty("--hue", hue(group.consumers.indexOf(consumer)));
    row.title = `lease: ${span(consumer.lease_ms)}, node ${consumer.node}`;
    row.className = ["running", "stable"].includes(consumer.state) ? "" : "warn";
    const now = row.cells[8] || (row.insertCell(), row.insertCell());
    set(now, consumer.now);
    now.className = "text now";
    const stack = row.cells[7];
    if (!stack.firstChild) {
      const button = document.createElement("button");
      button.textContent = "Stack";
      button.title = "where its threads are, and its logs";
      button.addEventListener("click", () => show_stack(button.dataset.consumer));
      stack.append(button);
    }
    stack.firstChild.dataset.consumer = `${group.group}/${consumer.member}`;
  });
}

async function show_stack(consumer) {
  const dialog = find(document, "#stack"), ray = find(dialog, ".ray");
  set(find(dialog, ".text"), "…");
  ray.hidden = true;
  dialog.showModal();
  const answer = await fetch(address("stack", { consumer }));
  const told = await answer.json();
  set(find(dialog, ".text"), answer.ok ? told.text : told.error);
  ray.hidden = !told.ray;
  ray.href = told.ray || "";
}

function show_events(list, events) {
  const newest = events.slice(-30).reverse();
  while (list.children.length > newest.length) list.lastChild.remove();
  newest.forEach((event, index) => {
    const item = list.children[index] || list.appendChild(document.createElement("li"));
    const moved = event.moved ? `: ${event.moved} partition${event.moved > 1 ? "s" : ""} given` : "";
    set(item, `${time(event.at_ms)}  ${event.cause || event.kind}${moved}`);
  });
}

function show(picture) {
  seen_ms = Date.now();
  find(document, "#trouble").hidden = true;
  document.title = `PXRS ${picture.topology}`;
  shown_now(picture.topology);
  set(find(document, "#topology"), picture.topology);
  set(find(document, "#store"), `registry ${picture.store.url}, ${picture.store.mean_ms} ms a call`);
  const list = find(document, "#problems");
  list.hidden = !picture.problems.length;
  list.replaceChildren(...picture.problems.map((problem) => {
    const item = document.createElement("li");
    item.className = problem.severity;
    item.textContent = problem.line;
    const remedy = document.createElement("small");
    remedy.textContent = problem.remedy;
    item.append(remedy);
    return item;
  }));
  picture.groups.forEach(show_group);
  show_queues(picture.queues);
  show_buffers(picture.buffers);
  queues(picture.queues.map((q) => q.queue));
  if (!drawn) requestAnimationFrame(() => setTimeout(() => performance.mark("first picture")));
  drawn = true;
}

function show_queues(queues) {
  const table = find(document, "#queues");
  table.again = () => show_queues(queues);
  const sorted = in_order(table, queues, (q) => [q.queue, q.partitions, q.messages, q.bytes, q.rate]);
  rows(table.tBodies[0], sorted.map((q) =>
    [q.queue, q.partitions, short(q.messages), size(q.bytes), short(q.rate)]));
}

function show_buffers(buffers) {
  const table = find(document, "#buffers"), body = table.tBodies[0];
  table.again = () => show_buffers(buffers);
  const place = (b) => [b.buffer, b.host, b.node, b.disk_id, b.state ?? (b.away ? "away" : "-")];
  const sorted = in_order(table, buffers, (b) => [...place(b), b.lease_ms, b.disk, b.free, b.memory,
    b.messages, b.refused, b.fenced]);
  rows(body, sorted.map((b) => [...place(b), b.lease_ms ? span(b.lease_ms) : "none",
    ...(b.away ? ["", "", "", "", "", ""]
      : [size(b.disk), size(b.free), size(b.memory), short(b.messages), b.refused, b.fenced])]));
  sorted.forEach((b, index) => {
    body.rows[index].cells[4].className = b.well ? "good" : "bad";
  });
}

function trouble(text) {
  const node = find(document, "#trouble");
  node.hidden = false;
  set(node, text);
}

// Post one action; its answer in words, or null and what was wrong at the top of the page.
async function post(action, group, value) {
  const answer = await fetch(address("actions"), {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-PXRS": "1" },
    body: JSON.stringify({ action, group, value }),
  });
  const told = await answer.json();
  if (answer.ok) return told.done;
  done(`not done: ${told.error}`);
  return null;
}

let forgetting = 0;
function done(text) {
  set(find(document, "#done"), text);
  clearTimeout(forgetting);
  forgetting = setTimeout(() => set(find(document, "#done"), ""), 15000);
}

async function act(action, group, value) {
  done("…");
  const told = await post(action, group, value);
  if (told !== null) done(told);
  return told !== null;
}

async function ask(group, action, root) {
  const place = { to: find(root, ".place").value.trim(), partition: find(root, ".which").value.trim() };
  const value = { scale: Number(find(root, ".count").value), seek: place }[action];
  const question = action === "seek" ? await post("plan_seek", group, place) : {
    pause: `Pause ${group}? Its consumers finish what they hold and fetch nothing more.`,
    resume: `Let ${group} go on?`,
    scale: `Scale ${group} to ${value} consumers?`,
  }[action];
  if (question === null) return;
  const dialog = find(document, "#confirm");
  set(find(dialog, "#question"), question);
  dialog.returnValue = "no";
  dialog.showModal();
  await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
  if (dialog.returnValue === "yes") await act(action, group, value);
}

messages(act);
follow_span(find(document, "#span"));
asked_for();
const stream = new EventSource(address("events"));
stream.addEventListener("topologies", (event) => show_topologies(JSON.parse(event.data)));
stream.addEventListener("past", (event) => { past = JSON.parse(event.data); });
stream.addEventListener("picture", (event) => show(JSON.parse(event.data)));
stream.addEventListener("trouble", (event) => trouble(JSON.parse(event.data).error));
stream.onerror = () => trouble("the server of this page does not answer; trying again");
setInterval(() => {
  set(find(document, "#age"), seen_ms ? `seen ${span(Date.now() - seen_ms)} ago` : "");
}, 1000);
