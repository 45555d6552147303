// The page: asks the service's own API every few seconds, and shows what it says.

import {
  Figure, around, known, lasting, moment, node, number, percent, scaled, valueTicks, whisker,
} from "./draw.js";
import { Failure, KEY, ask } from "./ask.js";
import * as manage from "./manage.js";
import * as pays from "./pays.js";

const EVERY = 5000; // ms between questions
const SELDOM = 30000; // ms between those whose answers take longer and change less
const THEME = "ensemble-sampling theme";
const find = (id) => document.getElementById(id);
const FEW = 5; // last decisions that are shown before more are asked for
const MANY = 20;
const now = { bandit: null, turn: 0, timer: null, seldom: 0, rare: null, admin: false };

// ---- asking in turns

async function turn() {
  clearTimeout(now.timer);
  const mine = (now.turn += 1);
  try {
    if (now.bandit === null || Date.now() - now.seldom > SELDOM) await names();
    if (mine !== now.turn || now.bandit === null) return;
    const at = `bandits/${encodeURIComponent(now.bandit)}`;
    const count = find("more").getAttribute("aria-expanded") === "true" ? MANY : FEW;
    const rarely = now.rare === null || Date.now() - now.seldom > SELDOM;
    const [status, history, recent, changes, rare] = await Promise.all([ask(`${at}/status`),
      ask(`${at}/history?${period()}`), ask(`${at}/recent?count=${count}`), ask(`${at}/changes`), rarely ? seldom(at) : now.rare]);
    if (mine !== now.turn) return;
    if (rarely) Object.assign(now, { rare, seldom: Date.now() });
    show(status, history, recent, manage.told(changes), rare);
    if (find("segments").open) await segments();
    said("on", `Updated ${moment(new Date())}`);
    alarm("");
  } catch (error) {
    if (mine !== now.turn) return;
    if (!(error instanceof Failure)) throw error;
    failed(error);
  } finally {
    if (mine === now.turn) later();
  }
}

function later() {
  const paused = find("pause").getAttribute("aria-pressed") === "true";
  clearTimeout(now.timer);
  if (!paused && !document.hidden && find("ask").hidden) now.timer = setTimeout(turn, EVERY);
}

async function seldom(at) {
  const since = `since=${after()}`;
  const [summary, about, lift, metrics, last] = await Promise.all([ask(`${at}/summary`), ask(at), ask(`${at}/lift?${since}`),
    ask(`${at}/metrics?${since}`), ask(`${at}/recent?count=1`).then(([one]) => one && ask(`${at}/explain/${encodeURIComponent(one.id)}?top=1`)
      .catch(() => null))]);
  const context = last?.context;
  const keys = context && typeof context === "object" && !Array.isArray(context) ? Object.keys(context) : [];
  return { summary, about, lift, metrics, keys };
}

// What is compared begins with the hours or days that were chosen, or else with the first decision.
function after() {
  const range = Number(find("range").value);
  return range > 0 ? Math.floor(Date.now() / 60000) * 60 - range : 0;
}

function period() {
  const range = find("range").value;
  const since = range === "0" ? 0 : range === "all" ? 1 : Math.floor(Date.now() / 1000) - Number(range);
  const parts = Math.round(Number(find("parts").value) * (window.innerWidth < 560 ? 0.625 : 1));
  return `buckets=${parts}&since=${since}`;
}

async function segments() {
  const key = find("segment").value, bandit = now.bandit;
  const path = `bandits/${encodeURIComponent(bandit)}/segments/${encodeURIComponent(key)}?since=${after()}`;
  const rows = await ask(path).then(pays.segments).catch((error) => { // nobody may have said it in that time
    if (error.status !== 404) throw error;
    return [node("p", { class: "note" }, "No decision of this time says it.")];
  });
  if (bandit === now.bandit && key === find("segment").value) find("segment-rows").replaceChildren(...rows);
}

function choices(select, values) {
  if ([...select.options].map((one) => one.value).join("\n") === values.join("\n")) return;
  const before = select.value;
  select.replaceChildren(...values.map((value) => node("option", { value }, value)));
  if (values.includes(before)) select.value = before;
}

async function names() {
  const [{ bandits }, { scopes }] = await Promise.all([ask("bandits"), ask("key")]);
  now.admin = scopes.includes("admin");
  const wanted = new URLSearchParams(location.search).get("bandit");
  if (!bandits.includes(now.bandit)) {
    now.bandit = bandits.includes(wanted) ? wanted : bandits[0] ?? null;
    now.rare = null;
  }
  const select = find("bandit");
  choices(select, bandits);
  select.value = now.bandit ?? "";
  find("pick").hidden = bandits.length === 0;
  find("forget").hidden = !sessionStorage.getItem(KEY);
  if (now.bandit === null) {
    said("on", "");
    alarm("There is no bandit that may be read here.");
  }
}

function failed({ status, message }) {
  const again = `; trying again every ${EVERY / 1000} s`;
  if (status === 401 || status === 403) {
    const had = sessionStorage.getItem(KEY);
    const words = status === 403 ? "The key that was given may not read here: it lacks the scope read."
      : had ? "The key that was given is not known here, or was revoked." : "";
    find("why").textContent = words;
    find("main").hidden = true;
    find("ask").hidden = false;
    find("forget").hidden = !had;
    said("off", "Not open");
    alarm("");
    find("key").focus();
  } else if (status === 0) {
    said("off", "Away");
    alarm(`The service does not answer (${message})${again}. What is shown may be old.`);
  } else if (status === 404) {
    now.bandit = null;
    said("off", "Not there");
    alarm(`Not found: ${message}${again}.`);
  } else {
    said("off", "In trouble");
    alarm(`The service says ${status}: ${message}${again}. What is shown may be old.`);
  }
}

function said(state, words) {
  find("live").className = `live ${state}`;
  if (find("live").textContent !== words) find("live").textContent = words;
}

function alarm(words) {
  find("alert").hidden = words === "";
  if (find("alert").textContent !== words) find("alert").textContent = words;
}

// ---- what is seen

const figures = {
  reward: new Figure("Reward", "Mean reward of the decisions made then, with its 95% interval"),
  exploration: new Figure("Exploration and agreement",
    "Explored: share of decisions other than the most likely one. Agreement: how likely two " +
    "members are to choose alike"),
  actions: new Figure("Actions", "Share of decisions"),
  pending: new Figure("Pending outcomes", "Decisions whose outcome had not come"),
};
find("figures").append(...Object.values(figures).map((one) => one.element));

function show(status, history, recent, changes, { summary, about, lift, metrics, keys }) {
  document.title = `${now.bandit}: bandits`;
  find("ask").hidden = true;
  find("main").hidden = false;
  const none = status.decisions === 0;
  for (const id of ["tiles", "figures", "last", "period"]) find(id).hidden = none;
  find("empty").hidden = !none;
  if (none) nothing();
  tiles(status, history, summary);
  const watched = about.settings.mode === "apprentice"
    ? ["Apprentice mode: the first action available is taken, and the agent only says what it would do."] : [];
  const trouble = status.trouble ? [`This process can neither learn nor follow: ${status.trouble}`] : [];
  warnings([...trouble, ...watched, ...summary.warnings]);
  if (history.length) draw(history, changes);
  find("bare").hidden = none || history.length > 0;
  find("bare").textContent = "No decision was made in this time.";
  if (!history.length) find("figures").hidden = true;
  earnings(status, lift, metrics, keys, none);
  shadows(summary.shadows);
  decisions(recent, status.decisions);
  manage.list(changes);
  managing(status, about, summary.shadows.map((one) => one.name));
  const count = history.reduce((sum, part) => sum + part.decisions, 0);
  find("foot").textContent = none ? ""
    : `Figures show the last ${number(count)} of ${number(status.decisions)} decisions, in the ` +
      "time zone of this browser.";
}

function earnings(status, lift, metrics, keys, none) {
  const compared = lift.held > 0 || status.holdback > 0;
  find("pays").hidden = none || !(compared || metrics.length || keys.length);
  const bare = [node("p", { class: "note" }, "Nothing is held back from the bandit: with a holdback of 10%, say, this says " +
    "what it earns compared with a baseline.")];
  const range = find("range");
  find("pays-period").textContent = after() ? `Of decisions of the ${range.selectedOptions[0].textContent}.`
    : "Of all decisions since the baseline is what it is.";
  find("pays-rows").replaceChildren(...(compared ? pays.lift(lift) : bare), ...pays.metrics(metrics));
  find("segments").hidden = keys.length === 0;
  choices(find("segment"), keys);
}

function managing(status, about, watching) {
  find("manage").hidden = !now.admin;
  if (!now.admin) return;
  find("resume").hidden = !status.health?.halted;
  if (!find("settings").open) manage.fill(about.settings, status.floor);
  const idle = about.candidates.filter((name) => !watching.includes(name));
  find("watching").hidden = idle.length === 0 || status.decisions === 0;
  if (find("candidates").textContent !== idle.map((name) => `${name} Let it watch`).join("")) {
    find("candidates").replaceChildren(...idle.map((name) => node("li", {}, `${name} `,
      node("button", { type: "button", onclick: () => changed(name, "shadows", "POST", { name }, `${name} watches now.`) },
        "Let it watch"))));
  }
}

// What is done to a shadow; the page then shows how things are.
async function changed(name, what, method, body, done) {
  const path = `bandits/${encodeURIComponent(now.bandit)}/${what}`;
  const found = await manage.act(path, method, body, find("shadow-said"), done);
  if (found !== undefined) {
    now.rare = null;
    turn();
  }
}

function nothing() {
  const url = new URL(".", location.href).href.replace(/\/$/, "");
  find("how").textContent = "Make the first one, and this page fills by itself:";
  find("example").textContent = [
    "import ensemble_sampling as es",
    "",
    `client = es.Client(${JSON.stringify(url)}, bandit=${JSON.stringify(now.bandit)}` +
      `${sessionStorage.getItem(KEY) ? ', key="..."' : ""})`,
    'made = client.choose({"tea": {"hot": 1}, "lemonade": {"hot": 0}}, context={"hour": 9})',
    "client.learn(made.id, 1.0)",
  ].join("\n");
}

function mean(history, value, weight) {
  const parts = history.filter((part) => known(part[value]) && part[weight] > 0);
  const total = parts.reduce((sum, part) => sum + part[weight], 0);
  return total ? parts.reduce((sum, part) => sum + part[value] * part[weight], 0) / total : null;
}

function tiles(status, history, summary) {
  const pending = status.pending ?? status.decisions - status.outcomes;
  const { p50, p99 } = status.latency ?? {};
  const learner = status.learner === null ? "nobody learns at the moment"
    : status.learning ? "this process learns" : `${status.learner} learns`;
  const oldest = known(summary.waiting) ? `the oldest for ${lasting(summary.waiting)}` : "none waits";
  const share = status.decisions ? percent(status.outcomes / status.decisions) : "none";
  const ms = (value) => `${number(value)} ms`;
  const all = [
    ["Decisions", number(status.decisions), "made in all", "decisions"],
    ["Outcomes", number(status.outcomes), `for ${share} of decisions` +
      (summary.expired ? `, ${number(summary.expired)} assumed` : ""), "outcomes"],
    ["Pending", number(pending), pending ? oldest : "none waits", "pending"],
    ["Reward", known(summary.recent_reward) ? number(summary.recent_reward) : "none yet",
      known(summary.reward) ? `last ${summary.recent}; ${number(summary.reward)} in all` : "no outcome has come",
      "reward"],
    ["Explored", percent(mean(history, "exploration", "decisions")),
      `of the decisions below; floor ${percent(status.floor)}`, "explored"],
    ["Agreement", percent(summary.agreement), `last ${summary.recent} decisions`, "agreement"],
    ["Time to decide", known(p50) ? ms(p50) : "none yet",
      known(p99) ? `half of them; 99% in ${ms(p99)}` : "no decision in this process", "latency"],
    ["Behind", lasting(status.behind), learner, "behind"],
  ];
  find("tiles").replaceChildren(...all.map(([title, value, more, id]) => node("div", { id: `tile-${id}` },
    node("dt", {}, title), node("dd", {}, value), node("dd", { class: "more" }, more))));
}

function warnings(words) {
  find("warnings").hidden = words.length === 0;
  find("warnings").replaceChildren(...words.map((word) => node("li", {}, word)));
}

function draw(history, marks) {
  const ends = history.map((part) => 1000 * part.time);
  const width = ends.length > 1 ? ends[1] - ends[0] : 60000;
  const counts = history.map((part) => part.decisions);
  const column = (name) => history.map((part) => part[name]);
  const common = { ends, width, counts, marks };
  figures.reward.set(rewards(common, column));
  const votes = ["exploration", "agreement"].map((name, n) => ({
    name: ["explored", "agreement"][n], colour: `var(--c${1 - n})`, values: column(name),
    dash: n ? null : "5 3", show: (k) => percent(history[k][name]),
  }));
  figures.exploration.set(votes.some((one) => one.values.some(known))
    ? { ...common, series: votes, low: 0, high: 1, show: percent }
    : "Every decision was made elsewhere: what else could have been chosen is not known.");
  const named = Object.keys(history.find((part) => part.decisions > 0)?.actions ?? {});
  const shares = named.map((name, n) => ({
    name: /^\d+$/.test(name) ? `action ${name}` : name, colour: `var(--c${n})`,
    values: history.map((part) => part.actions[name] ?? null),
    show: (k) => percent(history[k].actions[name]),
  }));
  const rest = history.map((part) => (part.decisions
    ? Math.max(0, 1 - Object.values(part.actions).reduce((sum, share) => sum + share, 0)) : null));
  if (rest.some((share) => share > 1e-6)) {
    shares.push({ name: "others", colour: "var(--c8)", values: rest, show: (k) => percent(rest[k]) });
  }
  figures.actions.set({ ...common, series: shares, stacked: true, low: 0, high: 1, show: percent });
  const waiting = { name: "pending", colour: "var(--c4)", values: column("pending"),
    show: (k) => number(history[k].pending) };
  const most = Math.max(4, ...waiting.values.filter(known));
  figures.pending.set({ ...common, series: [waiting], low: 0, high: 1.05 * most, show: number });
}

function rewards(common, column) {
  const values = column("reward"), low = column("low"), high = column("high");
  const seen = values.filter(known);
  if (!seen.length) return "No outcome yet: they are told by POST /v1/bandits/NAME/outcome.";
  // Parts with few outcomes have wide intervals, which may leave the figure.
  const sorted = (side) => side.filter(known).sort((a, b) => a - b);
  const [lows, highs] = [sorted(low), sorted(high)];
  const quantile = (side, share) => side[Math.round(share * (side.length - 1))];
  let from = Math.min(...seen, quantile(lows, 0.1) ?? Infinity);
  let to = Math.max(...seen, quantile(highs, 0.9) ?? -Infinity);
  if (from > 0 && from < 0.5 * to) from = 0;
  if (from < 0 && Math.min(...seen) >= 0) from = 0;
  if (to === from) [from, to] = [from - 0.5, to + 0.5];
  const ticks = valueTicks(from, to);
  const step = ticks.length > 1 ? ticks[1] - ticks[0] : 1;
  const series = [{ name: "reward", colour: "var(--accent)", values, low, high,
    show: (k) => (known(low[k]) ? `${number(values[k])} (${number(low[k], 2)} to ${number(high[k], 2)})`
      : number(values[k])) }];
  return { ...common, series, low: Math.floor(from / step + 1e-9) * step, high: to, show: (v) => number(v, 6) };
}

function shadows(all) {
  find("shadows").hidden = all.length === 0;
  const text = JSON.stringify([all, now.admin]);
  if (find("shadow-rows").dataset.text === text) return; // a button may be in focus
  find("shadow-rows").dataset.text = text;
  const sides = all.flatMap(({ low, high, reward }) => [
    ...(known(low) ? [low, high] : []),
    ...(known(reward) ? [reward] : [])]);
  const room = 0.06 * (Math.max(...sides) - Math.min(...sides)) || 0.5;
  const scale = [Math.min(...sides) - room, Math.max(...sides) + room];
  find("shadow-rows").replaceChildren(...all.map((one, n) => {
    const [word, kind, more] = judged(one);
    const agreed = one.agreement === null ? "no decision yet"
      : `agrees in ${percent(one.agreement)} of ${number(one.decisions)} decisions`;
    const picture = node("div", {});
    if (known(one.low)) {
      picture.append(whisker(one.value, [one.low, one.high], one.reward, scale, `var(--c${n % 8})`));
    }
    return node("div", { class: "shadow" },
      node("div", {}, node("h3", {}, one.name), node("p", { class: "note" }, agreed)), picture,
      node("p", {}, node("span", { class: `word ${kind}` }, word), more, now.admin ? choosing(one.name) : null));
  }));
  if (sides.length) {
    const axis = scaled(scale);
    const title = node("p", { class: "note" }, "mean reward");
    find("shadow-rows").append(node("div", { class: "shadow scale" }, node("div"), axis, title));
  }
}

function choosing(name) {
  const what = `shadows/${encodeURIComponent(name)}`;
  return node("span", { class: "row" },
    manage.twice("Promote", `Put ${name} in charge now`, () => changed(name, `${what}/promote`, "POST", undefined, `${name} decides from now on.`)),
    manage.twice("Dismiss", `Let ${name} go now`, () => changed(name, what, "DELETE", undefined, `${name} watches no more.`)));
}

function judged({ value, low, high, reward, effective, unsupported, agreement }) {
  if (unsupported > 0.05) {
    return ["cannot be told", "", `: at least ${percent(unsupported)} of its choices had no chance; ` +
      "decide with a floor"];
  }
  if (!known(low) || !known(reward)) {
    return ["nothing to say yet", "", agreement === null ? "" : ": no outcome of its decisions"];
  }
  const [word, kind] = low > reward ? ["ahead", "up"]
    : high < reward ? ["behind", "down"] : ["no clear difference", ""];
  return [word, kind, `: ${number(value)} (${number(low)} to ${number(high)}) against ${number(reward)} in charge ` +
    `(as from ${number(Math.round(effective))} decisions of its own)`];
}

// ---- last decisions: those that did not change stay as they are, open or in focus

const rows = new Map();

function decisions(recent, made) {
  find("last").hidden = recent.length === 0;
  find("more").hidden = made <= FEW;
  if (now.bandit !== rows.bandit) {
    rows.bandit = now.bandit;
    find("shadow-said").textContent = "";
  }
  const keep = new Set(recent.map((one) => one.id));
  for (const [id, row] of rows) if (!keep.has(id)) { row.element.remove(); rows.delete(id); }
  let after = null;
  for (const one of recent) {
    const text = JSON.stringify(one);
    let row = rows.get(one.id);
    if (row === undefined) {
      row = { element: node("details", { class: "decision" }, node("summary")), text: null, why: null };
      row.element.addEventListener("toggle", () => explain(row));
      rows.set(one.id, row);
    }
    if (row.text !== text) {
      Object.assign(row, { text, one });
      row.element.firstChild.replaceChildren(...headline(one));
      explain(row);
    }
    const place = after === null ? find("decisions").firstChild : after.nextSibling;
    if (place !== row.element) find("decisions").insertBefore(row.element, place);
    after = row.element;
  }
}

function headline(one) {
  const tag = one.foreign ? "made elsewhere" : one.explored ? "explored" : null;
  const came = one.outcome === null ? "waiting"
    : `outcome ${spelled(one.outcome)}${one.expired ? ", assumed" : ""}`;
  return [
    node("span", { class: "when" }, moment(new Date(1000 * one.time))),
    node("span", { class: "what" }, called(one.action), tag && node("span", { class: "tag" }, tag)),
    node("span", { class: "chance" }, known(one.probability) ? `chance ${percent(one.probability)}` : ""),
    node("span", { class: "came" }, came),
  ];
}

const spelled = (outcome) => (Array.isArray(outcome) ? `[${outcome.map((y) => number(y)).join(", ")}]`
  : number(outcome));
const called = (name) => (typeof name === "string" ? name : `action ${JSON.stringify(name)}`);

// What was said, field by field: [name, value].
function fields(said, name = "") {
  if (said === null || said === undefined) return name ? [[name, "missing"]] : [];
  if (Array.isArray(said) && !name) return said.map((value, n) => [`x${n}`, shortened(value)]);
  if (typeof said === "object" && !Array.isArray(said)) {
    return Object.entries(said).flatMap(([key, value]) => fields(value, name ? `${name}.${key}` : key));
  }
  return [[name, shortened(said)]];
}

const shortened = (value) => (typeof value === "number" ? number(value, 4)
  : typeof value === "string" ? value : JSON.stringify(value));

const FIELDS = 12; // that are shown of one description

function listed(said) {
  const all = fields(said);
  const some = all.slice(0, FIELDS).map(([name, value]) => node("li", {},
    name && node("span", {}, `${name} `), value));
  if (all.length > FIELDS) some.push(node("li", {}, `and ${number(all.length - FIELDS)} more`));
  return all.length ? node("ul", { class: "said" }, ...some) : null;
}

async function explain(row) {
  shown(row);
  if (!row.element.open) return;
  const { text, one } = row;
  const path = `bandits/${encodeURIComponent(now.bandit)}/explain/${encodeURIComponent(one.id)}`;
  try {
    row.why = await ask(path);
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    row.why = { reasons: [], actions: [], offer: [], note: error.message };
  }
  if (row.text === text) shown(row);
}

function shown({ element, one, why }) {
  while (element.childNodes.length > 1) element.lastChild.remove();
  if (!element.open) return;
  const parts = why ? reasons(why) : [];
  if (one.actions.length) parts.push(...votes(one, why));
  else parts.push(node("p", { class: "note" }, "It was made elsewhere: why is not known."));
  element.append(node("div", { class: "why" }, ...parts));
}

function reasons({ action, next, difference, reasons, context, actions, offer, note }) {
  const parts = [], around = listed(context);
  if (around) parts.push(node("h3", {}, "Context"), around);
  if (known(difference)) {
    const than = difference < 0 ? "less" : "more";
    parts.push(node("h3", {}, `Why ${called(action)} rather than ${called(next)}`),
      node("p", { class: "note" }, `By what is known now it is worth ${number(Math.abs(difference))} ${than}. ` +
        "Without a field that difference would be smaller (+) or larger (\u2212) by:"));
    const most = Math.max(...reasons.map((one) => Math.abs(one.weight)));
    parts.push(node("ul", { class: "reasons" }, ...reasons.map((one) => reason(one, most))));
  } else if (actions.length === 1 && listed(offer[0])) {
    parts.push(node("h3", {}, called(actions[0])), listed(offer[0]));
  }
  if (note) parts.push(node("p", { class: "note" }, `${note[0].toUpperCase()}${note.slice(1)}.`));
  return parts;
}

function reason({ side, field, chosen, next, weight }, most) {
  const bar = node("i", { class: weight < 0 ? "down" : "up" });
  bar.style.width = `${(50 * Math.abs(weight)) / most}%`;
  const spoken = (value) => (value === null ? "missing" : shortened(value));
  const said = side === "context" ? spoken(chosen) : `${spoken(chosen)} against ${spoken(next)}`;
  return node("li", {},
    node("span", {}, node("b", {}, field || side), ` ${field && side === "context" ? "of the context, " : ""}${said}`),
    node("span", { class: "lean", "aria-hidden": true }, bar),
    node("span", {}, `${weight < 0 ? "\u2212" : "+"}${number(Math.abs(weight))}`));
}

function votes(one, why) {
  const valued = one.actions.filter((action) => known(action.mean));
  const sides = ({ mean, spread }) => (known(spread) ? [mean - spread, mean + spread] : [mean, mean]);
  const scale = [Math.min(...valued.flatMap(sides)), Math.max(...valued.flatMap(sides))];
  const heads = ["action", "votes then", ...(valued.length ? ["value ± spread, as valued now"] : [])];
  const body = one.actions.map((action) => {
    const bar = node("i");
    bar.style.width = `${100 * action.probability}%`;
    const described = why ? listed(why.offer[why.actions.indexOf(action.name)]) : null;
    const cells = [
      node("td", {}, called(action.name), action.chosen ? " (chosen)" : "", described),
      node("td", {}, node("div", { class: "cell short" }, node("span", { class: "bar" }, bar),
        node("span", {}, percent(action.probability)))),
    ];
    if (valued.length) {
      const said = around(action.mean, action.spread);
      cells.push(node("td", {}, node("div", { class: "cell" },
        whisker(action.mean, sides(action), null, scale, "var(--c2)"), node("span", {}, said))));
    }
    return node("tr", action.chosen ? { class: "chosen" } : {}, ...cells);
  });
  const more = one.offered - one.actions.length;
  return [node("h3", {}, "Actions"),
    node("table", {}, node("thead", {}, node("tr", {}, ...heads.map((h) => node("th", { scope: "col" }, h)))),
      node("tbody", {}, ...body)),
    node("p", { class: "note" }, `${more > 0 ? `and ${number(more)} more that were less likely. ` : ""}` +
      `${valued.length ? "" : "What actions are worth cannot be told: the offer was not kept, or the agent values nothing. "}` +
      `Decision ${one.id}`)];
}

// ---- what a person can do

find("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, find("key").value.trim());
  find("key").value = "";
  find("ask").hidden = true;
  Object.assign(now, { bandit: null, rare: null, seldom: 0 });
  turn();
});

find("forget").addEventListener("click", () => {
  sessionStorage.removeItem(KEY);
  find("forget").hidden = true;
  Object.assign(now, { bandit: null, rare: null, seldom: 0 });
  turn();
});

find("bandit").addEventListener("change", (event) => {
  Object.assign(now, { bandit: event.target.value, rare: null });
  history.replaceState(null, "", `?bandit=${encodeURIComponent(now.bandit)}`);
  turn();
});

for (const id of ["range", "parts"]) {
  find(id).addEventListener("change", () => {
    now.rare = null;
    turn();
  });
}

find("more").addEventListener("click", ({ currentTarget }) => {
  const more = currentTarget.getAttribute("aria-expanded") !== "true";
  currentTarget.setAttribute("aria-expanded", more);
  currentTarget.textContent = more ? `Show ${FEW}` : `Show ${MANY}`;
  turn();
});

for (const [id, event] of [["segments", "toggle"], ["segment", "change"]]) {
  find(id).addEventListener(event, () => {
    if (find("segments").open) segments().catch((error) => { if (!(error instanceof Failure)) throw error; failed(error); });
  });
}

find("set-baseline").addEventListener("change", manage.chosen);

find("set").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (await manage.save(now.bandit) === undefined) return;
  now.rare = null;
  turn();
});

find("resume").addEventListener("click", () => manage.act(`bandits/${encodeURIComponent(now.bandit)}/resume`, "POST",
  undefined, find("set-said"), "The bandit decides again.").then(turn));

find("new").addEventListener("submit", async (event) => {
  event.preventDefault();
  const name = await manage.create(find("new-said"));
  if (name === null) return;
  find("new").reset();
  Object.assign(now, { seldom: 0 });
  turn();
});

find("pause").addEventListener("click", ({ currentTarget }) => {
  const paused = currentTarget.getAttribute("aria-pressed") !== "true";
  currentTarget.setAttribute("aria-pressed", paused);
  if (paused) later();
  else turn();
});

document.addEventListener("visibilitychange", () => {
  if (document.hidden) clearTimeout(now.timer);
  else if (find("ask").hidden && find("pause").getAttribute("aria-pressed") !== "true") turn();
});

const system = matchMedia("(prefers-color-scheme: dark)");

function theme() {
  const chosen = localStorage.getItem(THEME);
  if (chosen) document.documentElement.dataset.theme = chosen;
  else delete document.documentElement.dataset.theme;
  const dark = chosen ? chosen === "dark" : system.matches;
  find("theme").textContent = dark ? "Light" : "Dark";
  find("theme").setAttribute("aria-label", `Switch to the ${dark ? "light" : "dark"} theme`);
}

find("theme").addEventListener("click", () => {
  const dark = (localStorage.getItem(THEME) ?? (system.matches ? "dark" : "light")) === "dark";
  const next = dark ? "light" : "dark";
  if ((next === "dark") === system.matches) localStorage.removeItem(THEME);
  else localStorage.setItem(THEME, next);
  theme();
});
system.addEventListener("change", theme);
theme();
turn();
