// Messages of a queue, and what a group has given up: asked for when somebody wants to see them.

import { address } from "./topologies.js";

const find = (root, selector) => root.querySelector(selector);

function cell(row, text, name) {
  const made = row.insertCell();
  made.textContent = text ?? "-";
  if (name) made.className = name;
  return made;
}

const headers = (message) => Object.entries(message.headers).map(([k, v]) => `${k}=${v}`).join(" ");
const clock = (at_ms) => new Date(at_ms).toLocaleString();

async function asked(path, parameters) {
  const answer = await fetch(address(path, parameters));
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.error);
  return told;
}

export function messages(act) {
  const form = find(document, "#messages form"), told = find(document, "#messages .told");
  const body = find(document, "#messages tbody");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    told.textContent = "\u2026";
    try {
      const found = await asked("messages", Object.fromEntries(new FormData(form)));
      body.replaceChildren();
      for (const message of found) {
        const row = body.insertRow();
        cell(row, `P${message.partition}@${message.offset}`);
        cell(row, clock(message.at_ms));
        cell(row, message.key);
        cell(row, message.payload, "text");
        cell(row, headers(message), "text");
      }
      told.textContent = `${found.length} message${found.length === 1 ? "" : "s"}` + (found.length >= 200 ? ", and more" : "");
    } catch (error) {
      told.textContent = error.message;
    }
  });
  const send = find(document, "#produce");
  send.addEventListener("submit", (event) => {
    event.preventDefault();
    const { key, payload } = Object.fromEntries(new FormData(send));
    act("produce", form.elements.queue.value, { key, payload });
  });
}

export function queues(names) {
  const select = find(document, "#messages select");
  if ([...select.options].map((option) => option.value).join() === names.join()) return;
  select.replaceChildren(...names.map((name) => new Option(name, name)));
}

export async function aside(group, root, act) {
  const body = find(root, ".aside tbody"), told = find(root, ".aside .told");
  find(root, ".aside").hidden = false;
  told.textContent = "\u2026";
  try {
    const found = await asked("aside", { group });
    body.replaceChildren();
    for (const letter of found.letters) {
      const row = body.insertRow();
      cell(row, letter.from);
      cell(row, clock(letter.at_ms));
      cell(row, letter.key);
      cell(row, letter.payload, "text");
      cell(row, letter.error, "text bad");
      const buttons = row.insertCell();
      for (const [action, words] of [["retry_letter", "Send again"], ["drop_letter", "Drop"]]) {
        const button = document.createElement("button");
        button.textContent = words;
        button.addEventListener("click", async () => {
          if (await act(action, group, letter.place)) aside(group, root, act);
        });
        buttons.append(button);
      }
    }
    for (const key of found.keys) {
      const row = body.insertRow();
      cell(row, "quarantine");
      cell(row, `${key.messages} messages`);
      cell(row, key.key);
      cell(row, "");
      cell(row, key.error, "text bad");
    }
    const count = found.letters.length + found.keys.length;
    told.textContent = count ? "" : "nothing: no message was given up, or all were dealt with";
    find(root, "[data-again=letters]").hidden = !found.letters.length;
    find(root, "[data-again=keys]").hidden = !found.keys.length;
  } catch (error) {
    told.textContent = error.message;
  }
}
