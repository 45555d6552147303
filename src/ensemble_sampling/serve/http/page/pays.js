// What the bandit earns compared with the baseline, in all and by segments, and what else comes of it.

import { known, node, number, percent, scaled, whisker } from "./draw.js";

const VERDICT = { up: "more with the bandit", down: "less with the bandit", "": "not told apart yet" };

export function verdict(difference) {
  return known(difference?.low) && difference.low > 0 ? "up"
    : known(difference?.high) && difference.high < 0 ? "down" : "";
}

export const spelled = (one) => (one === null ? "none yet"
  : known(one.low) && known(one.high) ? `${number(one.value)} (${number(one.low, 2)} to ${number(one.high, 2)})`
    : number(one.value));

const sides = (all) => {
  const ends = all.filter(Boolean).flatMap((one) => [one.low, one.high, one.value].filter(known));
  const room = 0.06 * (Math.max(...ends) - Math.min(...ends)) || 0.5;
  return ends.length ? [Math.min(...ends) - room, Math.max(...ends) + room] : [0, 1];
};

const picture = (one, scale, mark, colour) => (known(one?.low) && known(one?.high)
  ? whisker(one.value, [one.low, one.high], mark, scale, colour) : "");

// Rows of [name, interval, colour, words beside it] on one scale.
function rows(all, mark = null) {
  const scale = sides(all.map((one) => one[1]));
  const made = all.map(([name, one, colour, ...words]) => node("div", { class: "shadow" },
    node("h3", {}, name), node("div", {}, picture(one, scale, mark, colour)), node("p", {}, ...words)));
  return [...made, node("div", { class: "shadow scale" }, node("div"), scaled(scale))];
}

export function lift(found) {
  if (found.bandit === null) {
    return [node("p", { class: "note" }, `${number(found.held)} of ${number(found.decisions)} decisions whose outcome ` +
      "came were left to the baseline: too few of one side to compare them.")];
  }
  const kind = verdict(found.difference);
  const ratio = found.ratio === null ? "" : `, ${spelled(found.ratio)} times as much`;
  return [
    node("p", {}, node("span", { class: `word ${kind}` }, VERDICT[kind]), `: ${spelled(found.difference)} of reward${ratio}`),
    ...rows([["With the bandit", found.bandit, "var(--c0)", spelled(found.bandit)],
      ["Without it", found.control, "var(--c8)", `${spelled(found.control)}: ${number(found.held)} of ` +
        `${number(found.decisions)} decisions were left to the baseline`]]),
  ];
}

export function metrics(found) {
  const said = found.map(({ name, mean, lift: compared, guard, broken, decisions }) => {
    const bound = guard === null ? "" : `, to be ${guard[0] === "<=" ? "at most" : "at least"} ${number(guard[1])}`;
    const than = compared.difference === null ? "" : `; ${spelled(compared.difference)} with the bandit less without it`;
    return node("li", {}, node("b", {}, name), ` ${spelled(mean)}${bound} `,
      broken ? node("span", { class: "word down" }, "broken ") : "", `of ${number(decisions)} decisions${than}`);
  });
  return found.length ? [node("h3", {}, "What else came of them"), node("ul", { class: "plain" }, ...said)] : [];
}

export function segments({ parts, most, least }) {
  const compared = parts.some((part) => part.lift?.difference);
  const scale = sides(parts.map((part) => (compared ? part.lift?.difference : part.reward) ?? null));
  const told = [most !== null && `${most} gains most`, least !== null && `${least} gains least`].filter(Boolean);
  const head = ["segment", "decisions", "reward", compared ? "more with the bandit" : "", "actions", "explored"];
  const body = parts.map((part) => {
    const one = compared ? part.lift?.difference ?? null : part.reward;
    const actions = Object.entries(part.actions).slice(0, 3).map(([name, share]) => `${name} ${percent(share)}`);
    const cells = [number(part.decisions), spelled(part.reward),
      node("div", {}, picture(one, scale, compared ? 0 : null, "var(--c0)"), compared ? spelled(one) : ""),
      actions.join(", "), percent(part.exploration)];
    return node("tr", {}, node("th", { scope: "row" }, part.name), ...cells.map((cell) => node("td", {}, cell)));
  });
  return [
    node("p", { class: "note" }, told.length ? `${told.join("; ")}.` : "No segment is told apart from the others."),
    node("div", { class: "scroll wide", tabindex: "0", role: "region", "aria-label": "Segments" },
      node("table", {}, node("thead", {}, node("tr", {}, ...head.map((h) => node("th", { scope: "col" }, h)))),
        node("tbody", {}, ...body))),
  ];
}
