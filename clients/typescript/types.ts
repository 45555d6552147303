// Written by `python tests/typescript.py` from the service's OpenAPI document.

/** More came of a decision; the same `ref` twice counts once. */
export interface Add {
  id: string;
  amount: number | number[];
  ref?: string | null;
}

export interface Bandit {
  name: string;
  settings: Settings;
  candidates: string[];
}

export interface Bandits {
  bandits: string[];
}

export interface Changed {
  changed: boolean;
}

/** One decision to be made. The same `event` again gets the same answer.
 *
 * `slot` is which of several decisions of one event it is. For one that is `deferred`, no outcome
 * is assumed before it is activated. `subject` is whom it is about, see `Erase`.
 *
 * `made_at`: when the caller made it by itself, since the service was away, in seconds since 1970.
 * The one action that is available is what it took. It is recorded as made for certain by somebody
 * else: neither the bandit nor the control group is compared by it. */
export interface Choose {
  actions?: Record<string, Record<string, unknown> | unknown[] | string | number | null> | (Record<string, unknown> | unknown[] | string | number | null)[] | null;
  context?: Record<string, unknown> | unknown[] | string | number | null;
  available?: Record<string, boolean> | (string | boolean | number)[] | null;
  event?: string | null;
  slot?: string;
  deferred?: boolean;
  subject?: string | null;
  made_at?: number | null;
}

/** Several decisions, all of them made or none. */
export interface ChooseMany {
  decisions: Choose[];
}

/** The outcome of a decision turned out to be another. */
export interface Correct {
  id: string;
  outcome: number | number[];
}

/** A bandit to be begun, with the names of its actions where they are fixed. */
export interface Create {
  actions?: string[] | null;
  floor?: number | null;
}

/** A decision, on disk: what was chosen, and how likely each action was.
 *
 * `control`: whether it was left to the baseline; None where nothing is held back. `again`: it was
 * made before, for the same event or subject; `index` is where its action is now. */
export interface Decision {
  id: string;
  event: string | null;
  slot: string;
  index: number;
  action: string | number | boolean;
  probability: number;
  actions: (string | number | boolean)[] | null;
  probabilities: number[];
  mean: (number | null)[] | null;
  spread: (number | null)[] | null;
  time: number;
  again: boolean;
  control?: boolean | null;
}

export interface Decisions {
  decisions: Decision[];
}

/** Remove what was said in decisions about a subject, see `Bandit.erase`; `keep`: the agent goes
 * on knowing what it learned from them. */
export interface Erase {
  subject: string;
  keep?: boolean;
}

/** How many decisions were about the subject; `known`: of how many of them the state knows the
 * outcome from before decisions were removed, and goes on knowing it. */
export interface Erased {
  erased: number;
  known?: number;
}

/** What is wrong with a request. */
export interface Error {
  code: "invalid" | "unauthorized" | "forbidden" | "unknown" | "conflict" | "too_large" | "too_many" | "failed" | "unavailable";
  message: string;
}

/** Candidates to be judged on the log; None: all there are. */
export interface Evaluate {
  candidates?: string[] | null;
  baseline?: string;
}

/** What every candidate would have earned: the columns of a table, and the table as text. */
export interface Evaluation {
  columns: Record<string, unknown[]>;
  text: string;
}

/** Assume `outcome` for decisions older than so many seconds whose own never came. */
export interface Expire {
  older_than: number;
  outcome: number | number[];
}

export interface Expired {
  expired: number;
}

/** The body of every answer that is not a success. */
export interface Failure {
  error: Error;
}

export interface Health {
  status: "away" | "ok" | "starting";
  unavailable?: number;
}

/** A value and where it is in 95% of all histories, however often they are looked at; an end is
 * None where there are too few decisions to tell it. */
export interface Interval {
  value: number;
  low: number | null;
  high: number | null;
}

/** What a key allows, and the only bandit it is for, if it is for one. */
export interface KeyScopes {
  scopes: string[];
  bandit: string | null;
}

/** What came of a decision; metrics by name, where the reward is made of them. Where outcomes
 * add up, the same `ref` twice counts once. */
export interface Learn {
  id: string;
  outcome: number | number[] | Record<string, number>;
  ref?: string | null;
}

/** Several outcomes, all of them recorded or none. */
export interface LearnMany {
  outcomes: Learn[];
}

/** Rewards, or values of a metric, with the bandit and without it.
 *
 * name: of the part: a day, a segment; "all".
 * decisions: made while a part was held back, and whose outcome came.
 * held: how many of them were left to the baseline.
 * units: how many there are that are independent: subjects, and decisions about nobody.
 * bandit, control: the mean of decisions, if all had been made by the one or the other.
 * difference, ratio: of the first to the second; the ratio is None where the second is not above
 *     0. All of them are None before there are decisions of both.
 * parts: the same by days or segments, where that was asked for.
 *
 * Means are weighted by how likely either group was to choose what was chosen (see `weights`).
 * Every interval holds at all times together, so that it does no harm to look each day and to stop
 * when it says enough; see `sequences`. */
export interface Lift {
  name: string;
  decisions: number;
  held: number;
  units: number;
  bandit: Interval | null;
  control: Interval | null;
  difference: Interval | null;
  ratio: Interval | null;
  parts?: Lift[];
}

/** Something else that comes of decisions.
 *
 * decisions: how many it came of.
 * mean: of the decisions of the bandit, with an interval that holds at every look; None before
 *     there are any.
 * lift: compared with the baseline, see `Lift`.
 * guard: the bound of the mean, if there is one: ("<=", 0.05).
 * broken: whether the mean is beyond it, as far as the interval can tell. */
export interface Metric {
  name: string;
  decisions: number;
  mean: Interval | null;
  lift: Lift;
  guard?: [string, number] | null;
  broken?: boolean;
}

/** Whether the outcome was not known before; a list for several. */
export interface New {
  new: boolean | boolean[];
}

/** What else came of a decision, numbers by name; a value that is there is replaced. */
export interface Observe {
  id: string;
  values: Record<string, number>;
}

/** What may be chosen. */
export interface Offer {
  actions?: Record<string, Record<string, unknown> | unknown[] | string | number | null> | (Record<string, unknown> | unknown[] | string | number | null)[] | null;
  context?: Record<string, unknown> | unknown[] | string | number | null;
  available?: Record<string, boolean> | (string | boolean | number)[] | null;
}

/** Part of a log as columns; `next` is the first decision after it, None at the end. */
export interface Page {
  first: number;
  count: number;
  next: number | null;
  columns: Record<string, unknown[]>;
}

/** What a decision would be made of. */
export interface Prediction {
  actions: (string | number | boolean)[] | null;
  probabilities: number[];
  mean: (number | null)[] | null;
  spread: (number | null)[] | null;
}

/** The decisions in whose context a key has one value, or one in a range.
 *
 * decisions: how many there are; outcomes: of how many an outcome came.
 * reward: of these, as a mean with its interval.
 * lift: compared with the baseline, where a part is held back from the bandit.
 * actions: shares of those chosen most often.
 * exploration: how often the bandit chose something else than what had the best chance.
 *
 * Intervals hold at every look, and for all segments together: each of m may be wrong m times more
 * seldom than one alone (Bonferroni). */
export interface Segment {
  name: string;
  decisions: number;
  outcomes: number;
  reward: Interval | null;
  lift: Lift | null;
  actions: Record<string, number>;
  exploration: number | null;
}

/** The segments of one key, the largest first.
 *
 * most, least: the names of the segments that gain most and least by the bandit, among those that
 *     surely gain more and less than the others do; None for none. */
export interface Segments {
  key: string;
  parts: Segment[];
  most: string | null;
  least: string | null;
}

/** The settings of a bandit, stored in its ledger.
 *
 * wait: seconds after which a decision without an outcome gets `default`; None: never.
 * aggregation: "first": an outcome is final (a different second one is a conflict); "sum":
 *     outcomes of one decision add up.
 * mode: "online": the agent decides; "apprentice": the first action available is taken, and the
 *     agent only says what it would have done.
 * floor: the share of decisions left to chance, beside what the agent itself explores.
 * retain: days for which decisions and what came of them are kept; None: for ever.
 * holdback: the share of decisions, or of subjects where these are named, left to the baseline.
 * baseline: "first" (that is available), "uniform", {"action": NAME}, "frozen" (the agent as it is
 *     now), {"frozen": DATE}, or "rule" (the function that `serve --agents` has for it).
 * sticky: seconds for which a subject is given the same action again.
 * guard: bounds of the means of metrics, {"returned": ["<=", 0.05]}.
 * fallback: whether one that is broken leaves all decisions to the baseline, until `resume`.
 * reward: the weights of metrics that it is made of, {"click": 1, "margin": 0.2}; empty: it is the
 *     outcome that is told. Other weights hold for decisions that were made before, too. */
export interface Settings {
  wait?: number | null;
  default?: number;
  aggregation?: "first" | "sum";
  mode?: "apprentice" | "online";
  floor?: number;
  retain?: number | null;
  holdback?: number;
  baseline?: string | Record<string, unknown>;
  sticky?: number;
  guard?: Record<string, (string | number)[]>;
  fallback?: boolean;
  reward?: Record<string, number>;
}

/** A candidate that is to become a shadow. */
export interface Shadow {
  name: string;
}

export interface Shadows {
  candidates: string[];
  shadows: Record<string, unknown>[];
}
