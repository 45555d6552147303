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
 * is assumed before it is activated. `subject` is whom it is about, see `Erase`. */
export interface Choose {
  actions?: Record<string, Record<string, unknown> | unknown[] | string | number | null> | (Record<string, unknown> | unknown[] | string | number | null)[] | null;
  context?: Record<string, unknown> | unknown[] | string | number | null;
  available?: Record<string, boolean> | (string | boolean | number)[] | null;
  event?: string | null;
  slot?: string;
  deferred?: boolean;
  subject?: string | null;
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

/** A decision, on disk: what was chosen, and how likely each action was. */
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

/** How many decisions were about the subject. */
export interface Erased {
  erased: number;
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

/** What came of a decision. Where outcomes add up, the same `ref` twice counts once. */
export interface Learn {
  id: string;
  outcome: number | number[];
  ref?: string | null;
}

/** Several outcomes, all of them recorded or none. */
export interface LearnMany {
  outcomes: Learn[];
}

/** Whether the outcome was not known before; a list for several. */
export interface New {
  new: boolean | boolean[];
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

/** The settings of a bandit, stored in its ledger.
 *
 * wait: seconds after which a decision without an outcome gets `default`; None: never.
 * aggregation: "first": an outcome is final (a different second one is a conflict); "sum":
 *     outcomes of one decision add up.
 * mode: "online": the agent decides; "apprentice": the first action available is taken, and the
 *     agent only says what it would have done.
 * floor: the share of decisions left to chance, beside what the agent itself explores.
 * retain: days for which decisions and what came of them are kept; None: for ever. */
export interface Settings {
  wait?: number | null;
  default?: number;
  aggregation?: "first" | "sum";
  mode?: "apprentice" | "online";
  floor?: number;
  retain?: number | null;
}

/** A candidate that is to become a shadow. */
export interface Shadow {
  name: string;
}

export interface Shadows {
  candidates: string[];
  shadows: Record<string, unknown>[];
}
