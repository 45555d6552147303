// What an administrator does: settings, shadows, new bandits; and what was changed, when and by whom.

import { Failure, ask } from "./ask.js";
import { moment, node, number, percent } from "./draw.js";

const find = (id) => document.getElementById(id);
const DEFAULTS = { holdback: 0, baseline: "first", sticky: 0, guard: {}, fallback: false, halted: null,
  wait: null, default: 0, aggregation: "first", mode: "online", floor: 0, retain: null };
const DID = { began: "begins to watch", dismissed: "was let go", promoted: "was put in charge" };
const HIDDEN = ["salt", "since"];
const at = (bandit) => `bandits/${encodeURIComponent(bandit)}`;

// Ask for a change, and say what came of it, beside what was pressed.
export async function act(path, method, body, place, done) {
  place.className = "note";
  place.textContent = "Asking the service ...";
  try {
    const found = await ask(path, method, body);
    place.textContent = done;
    return found;
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    place.className = "wrong";
    place.textContent = error.status === 403 ? "The key may not do that: it lacks the scope admin."
      : `Nothing was changed: ${error.message}`;
    return undefined;
  }
}

// A button that is pressed twice, so that nothing is done by accident.
export function twice(words, sure, run) {
  const button = node("button", { type: "button" }, words);
  const reset = () => { button.textContent = words; button.className = ""; };
  button.addEventListener("blur", reset);
  button.addEventListener("click", () => {
    if (button.textContent === words) {
      button.textContent = sure;
      button.className = "main";
    } else {
      reset();
      run();
    }
  });
  return button;
}

// ---- settings

// floor: of all decisions, of which some may be what the bandit was begun with.
export function fill(settings, floor) {
  const own = 1 - (1 - floor) / (1 - settings.floor);
  find("own-floor").textContent = own > 1e-6 ? `, beside the ${percent(own)} it was begun with` : "";
  find("set-floor").value = 100 * settings.floor;
  find("set-holdback").value = 100 * settings.holdback;
  find("set-sticky").value = settings.sticky / 3600;
  find("set-reward").value = Object.entries(settings.reward).map((each) => each.join(" ")).join("\n");
  const { baseline } = settings, action = baseline.action;
  const plain = ["first", "uniform"].includes(baseline);
  const same = find("set-baseline").querySelector("[value=same]");
  same.hidden = plain || action !== undefined;
  same.textContent = baseline.rule ? "a rule of one's own" : "the agent as it was";
  find("set-baseline").value = action !== undefined ? "action" : plain ? baseline : "same";
  find("set-action").value = action ?? "";
  chosen();
  find("set-retain").value = settings.retain ?? "";
  find("set-guard").value = Object.entries(settings.guard).map(([name, bound]) => [name, ...bound].join(" ")).join("\n");
  find("set-fallback").checked = settings.fallback;
}

// The field for an action's name is there where one is meant.
export function chosen() {
  const named = find("set-baseline").value === "action";
  find("set-action-row").hidden = !named;
  find("set-action").required = named;
}

const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);

function weights(text) {
  return Object.fromEntries(lines(text).map((line) => {
    const [, name, weight] = /^(.+?)\s+(\S+)$/.exec(line) ?? [];
    if (name === undefined || !Number.isFinite(Number(weight))) {
      throw new Failure(0, `a weight is like click 1, got ${line}`);
    }
    return [name, Number(weight)];
  }));
}

function guards(text) {
  return Object.fromEntries(lines(text).map((line) => {
    const [, name, sign, bound] = /^(.+?)\s*(<=|>=)\s*(\S+)$/.exec(line) ?? [];
    if (name === undefined || !Number.isFinite(Number(bound))) {
      throw new Failure(0, `a guardrail is like returned <= 0.05, got ${line}`);
    }
    return [name, [sign, Number(bound)]];
  }));
}

export async function save(bandit) {
  const place = find("set-said"), share = (id) => Number(find(id).value) / 100;
  let guard, reward;
  try {
    guard = guards(find("set-guard").value);
    reward = weights(find("set-reward").value);
  } catch (error) {
    place.className = "wrong";
    place.textContent = `Nothing was changed: ${error.message}`;
    return undefined;
  }
  const retain = find("set-retain").value === "" ? null : Number(find("set-retain").value);
  const given = { floor: share("set-floor"), holdback: share("set-holdback"), retain, guard,
    fallback: find("set-fallback").checked, reward, sticky: 3600 * Number(find("set-sticky").value) };
  const baseline = find("set-baseline").value;
  if (baseline === "action") given.baseline = { action: find("set-action").value };
  else if (baseline !== "same") given.baseline = baseline;
  return act(`${at(bandit)}/settings`, "PATCH", given, place, "Saved; it holds in all processes.");
}

export async function create(place) {
  const name = find("new-name").value.trim();
  const actions = find("new-actions").value.split(/[,\n]/).map((one) => one.trim()).filter(Boolean);
  const body = { floor: Number(find("new-floor").value) / 100, ...(actions.length ? { actions } : {}) };
  const made = await act(at(name), "PUT", body, place, `${name} is there.`);
  return made === undefined ? null : name;
}

// ---- changes

const weighed = (value) => Object.entries(value ?? {}).map((each) => each.join(" ")).join(" + ") || "as told";
const shown = (name, value) => (value === null ? "none"
  : ["floor", "holdback"].includes(name) ? percent(value)
    : name === "sticky" || name === "wait" ? `${number(value)} s`
      : name === "retain" ? `${number(value)} days`
        : name === "guard" ? Object.entries(value).map(([key, bound]) => [key, ...bound].join(" ")).join(", ") || "none"
          : typeof value === "object" ? Object.entries(value).flat().join(" ") : String(value));

// [{at, words, who}], oldest first.
export function told(changes) {
  const before = {};
  return changes.map(({ time, name, value, who }) => {
    const last = before[name] ?? DEFAULTS;
    let words = Object.entries(value ?? {}).map(([did, whom]) => `${whom} ${DID[did]}`).join(", ");
    if (name === "noticed") {
      const often = [[value.all, "all actions"], [value.one, "one action"]].filter(([times]) => times);
      return { at: 1000 * time, words: `the world changed: models started again (so far ${often.map(([times, of]) => `${times} times of ${of}`).join(", ")})`, who: "the agent" };
    }
    if (name === "begun") words = "bandit begun";
    else if (name === "removed") {
      words = value.erased ? `${number(value.erased)} decisions about somebody erased`
        : `${number(value.gone)} decisions older than ${number(value.retained)} days removed`;
    } else if (name === "reward") words = `reward ${weighed(before.reward)} \u2192 ${weighed(value)}`;
    else if (name !== "shadows") {
      words = Object.entries(value)
        .filter(([key, now]) => !HIDDEN.includes(key) && JSON.stringify(now) !== JSON.stringify(last[key]))
        .map(([key, now]) => `${key} ${shown(key, last[key] ?? null)} \u2192 ${shown(key, now)}`).join(", ");
    }
    before[name] = value;
    return { at: 1000 * time, words: words || name, who: who ?? "without a key" };
  });
}

export function list(all) {
  find("changes").hidden = all.length === 0;
  find("change-rows").replaceChildren(...all.slice(-20).reverse().map(({ at: when, words, who }) => node("li", {},
    node("span", { class: "note" }, moment(new Date(when))), node("span", {}, words), node("span", { class: "note" }, who))));
}
