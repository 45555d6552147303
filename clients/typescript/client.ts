// Decisions of a service, asked for over HTTP: in Node 18 or newer and in browsers, by fetch alone.
// Whatever is sent has an id of its own, so that what is sent twice counts once.

import type {
  Add, Changed, Choose, Correct, Decision, Decisions, Erased, Expired, Failure, Learn, Lift, Metric,
  New, Observe, Offer, Page, Prediction, Segments, Settings,
} from "./types.ts";

export type * from "./types.ts";
export type Label = Decision["action"];
export type Outcome = Learn["outcome"];
export type Reply = Record<string, unknown>;

const AGAIN = [408, 429, 503]; // statuses after which the same request is sent again
const LONGEST = 5000; // ms between two attempts
const FALLBACK = "fallback"; // the slot, beside that of its event, of a decision made here

/** A request that the service refused, or that never reached it: then without a status. */
export class ServiceError extends Error {
  code: string;
  status: number | undefined;

  constructor(message: string, code = "unreachable", status?: number) {
    super(message);
    this.name = "ServiceError";
    this.code = code;
    this.status = status;
  }

  /** Whether the service was away, and may do the same another time. */
  get away(): boolean {
    return this.status === undefined || AGAIN.includes(this.status);
  }
}

export interface Options {
  key?: string; // of `ensemble-sampling keys create`
  bandit?: string;
  timeout?: number; // ms of one attempt
  retries?: number; // how often to try again
  later?: number; // how many reports are kept while the service is away; 0: they are errors
  lost?: (error: unknown, what: string, body: unknown) => void; // a kept report that was refused
  fetch?: typeof globalThis.fetch;
}

export interface Choice extends Omit<Choose, "actions"> {
  /** What to choose while the service is away, or a function of what may be chosen that says it. */
  fallback?: Label | ((names: Label[]) => Label);
}

/** `fallback`: it was made here, since the service was away, which is told of it later. */
export type Made = Decision & { fallback: boolean };

export class Client {
  #url: string;
  #headers: Record<string, string>;
  #options: Required<Omit<Options, "key" | "bandit">>;
  #kept: { what: string; body: object }[] = [];
  #sending: Promise<number> | null = null;

  constructor(url: string, options: Options = {}) {
    const { key, bandit = "default", timeout = 10_000, retries = 6, later = 1000 } = options;
    if (!/^https?:\/\//.test(url)) throw new TypeError(`url must begin with http:// or https://, got ${url}`);
    if (key !== undefined && !/^[!-~]+$/.test(key)) { // the message does not repeat it
      throw new TypeError("key must be as `ensemble-sampling keys create` prints it");
    }
    for (const [name, value] of Object.entries({ timeout, retries, later })) {
      if (!(value >= 0)) throw new RangeError(`${name} must be 0 or more, got ${value}`);
    }
    this.#url = `${url.replace(/\/+$/, "")}/v1/bandits/${encodeURIComponent(bandit)}`;
    this.#headers = { "Content-Type": "application/json" };
    if (key !== undefined) this.#headers["Authorization"] = `Bearer ${key}`;
    const lost = options.lost ?? ((error, what) => console.warn(`${what} was not recorded:`, error));
    const fetch = options.fetch ?? globalThis.fetch.bind(globalThis);
    this.#options = { timeout, retries, later, lost, fetch };
  }

  /** Choose among actions; the same `event` again gets the same answer. */
  async choose(actions?: Choose["actions"], choice: Choice = {}): Promise<Made> {
    const { fallback, ...given } = choice;
    const body: Choose = { actions: actions ?? null, ...given, event: given.event ?? newId() };
    try {
      return { ...(await this.#send<Decision>("POST", "choose", body)), fallback: false };
    } catch (error) {
      if (fallback === undefined || !(error instanceof ServiceError && error.away)) throw error;
      return this.#decide(body, fallback, error);
    }
  }

  /** Several decisions, all of them or none. */
  async chooseMany(offers: Choose[]): Promise<Decision[]> {
    const decisions = offers.map((one) => ({ event: newId(), ...one }));
    return (await this.#send<Decisions>("POST", "choose", { decisions })).decisions;
  }

  /** What came of a decision, or of an event: false if it was known, null if it is told later. */
  learn(id: string, outcome: Outcome): Promise<boolean | null> {
    return this.#report("outcome", { id, outcome, ref: newId() } satisfies Learn);
  }

  /** The same for pairs of id and outcome, all of them or none. */
  async learnMany(pairs: Iterable<[string, Outcome]>): Promise<boolean[]> {
    const outcomes = [...pairs].map(([id, outcome]): Learn => ({ id, outcome, ref: newId() }));
    return (await this.#send<New>("POST", "outcome", { outcomes })).new as boolean[];
  }

  /** Add to an outcome; the same `ref` counts once. False if it was known, null if told later. */
  add(id: string, amount: Add["amount"], ref = newId()): Promise<boolean | null> {
    return this.#report("add", { id, amount, ref } satisfies Add);
  }

  /** The outcome turned out to be another; false if it is what is known. */
  async correct(id: string, outcome: Correct["outcome"]): Promise<boolean> {
    return (await this.#send<Changed>("POST", "correct", { id, outcome } satisfies Correct)).changed;
  }

  /** Assume an outcome for decisions older than so many seconds; how many there were. */
  async expire(olderThan: number, outcome: Outcome): Promise<number> {
    return (await this.#send<Expired>("POST", "expire", { older_than: olderThan, outcome })).expired;
  }

  /** Remove what was said in decisions about a subject; how many. It needs the scope admin. */
  async erase(subject: string, keep = false): Promise<number> {
    return (await this.#send<Erased>("POST", "erase", { subject, keep })).erased;
  }

  /** What a decision would be made of; nothing is recorded. */
  predict(actions?: Offer["actions"], offer: Omit<Offer, "actions"> = {}): Promise<Prediction> {
    return this.#send("POST", "predict", { actions: actions ?? null, ...offer });
  }

  /** How the bandit is doing. */
  summary(): Promise<Reply> {
    return this.#send("GET", "summary");
  }

  /** Why a decision was made, by what is known now. */
  explain(id: string, top = 5): Promise<Reply> {
    return this.#send("GET", `explain/${encodeURIComponent(id)}?top=${top}`);
  }

  /** What the bandit earns compared with the baseline, or what a metric is with it and without;
   * since seconds after 1970. */
  lift(metric?: string, daily = false, since = 0): Promise<Lift> {
    const what = metric === undefined ? "lift" : `metrics/${encodeURIComponent(metric)}`;
    return this.#send("GET", `${what}?daily=${Number(daily)}&since=${Math.floor(since)}`);
  }

  /** What else came of a decision, numbers by name; false if it was known. */
  async observe(id: string, values: Observe["values"]): Promise<boolean> {
    return (await this.#send<New>("POST", "observe", { id, values } satisfies Observe)).new as boolean;
  }

  /** What else came of decisions. */
  metrics(since = 0): Promise<Metric[]> {
    return this.#send("GET", `metrics?since=${Math.floor(since)}`);
  }

  /** How the bandit does by what contexts say under a key. */
  segments(key: string, since = 0): Promise<Segments> {
    return this.#send("GET", `segments/${encodeURIComponent(key)}?since=${Math.floor(since)}`);
  }

  settings(): Promise<Settings> {
    return this.#send("GET", "settings");
  }

  /** Change these settings and no others; all as they are then. It needs the scope admin. */
  configure(some: Settings): Promise<Settings> {
    return this.#send("PATCH", "settings", some);
  }

  /** Let the bandit decide again after a bound was broken. It needs the scope admin. */
  async resume(): Promise<boolean> {
    return (await this.#send<Changed>("POST", "resume")).changed;
  }

  /** Decisions from `first` on, all or so many, as columns. */
  async log(first = 0, count = Infinity): Promise<Record<string, unknown[]>> {
    const columns: Record<string, unknown[]> = {};
    for (let at: number | null = first; at !== null && at < first + count;) {
      const most: number = Math.min(first + count - at, 1000);
      const page: Page = await this.#send<Page>("GET", `log?first=${at}&count=${most}`);
      for (const [name, values] of Object.entries(page.columns)) (columns[name] ??= []).push(...values);
      at = page.next;
    }
    return columns;
  }

  /** How many reports wait until the service answers again. */
  get waiting(): number {
    return this.#kept.length;
  }

  /** Send the reports that wait, in their order; how many still do. The next request that is
   * answered does so by itself. */
  flush(): Promise<number> {
    this.#sending ??= this.#flush().finally(() => { this.#sending = null; });
    return this.#sending;
  }

  async #flush(): Promise<number> {
    for (let one = this.#kept[0]; one !== undefined; one = this.#kept[0]) {
      const known = this.#kept.some(({ body }) => (body as Learn).id === decisionOf(one.body));
      try { // where its outcome comes next, none is to be assumed meanwhile, however old it is
        await this.#ask("POST", one.what, JSON.stringify({ ...one.body, ...(known && { deferred: true }) }), 0);
      } catch (error) {
        if (error instanceof ServiceError && error.away) break;
        this.#options.lost(error, one.what, one.body);
      }
      this.#kept.shift();
    }
    return this.#kept.length;
  }

  /** A decision of one's own. It is reported with its time, as one in which nothing else could be
   * chosen: chance had no part in it, what came of it can be learned, and lift leaves it out. */
  #decide(body: Choose, fallback: NonNullable<Choice["fallback"]>, error: ServiceError): Made {
    const { actions, available } = body, names = named(actions);
    const may = (name: Label, n: number): boolean => (Array.isArray(available)
      ? available[n] === true || available.includes(name as string)
      : available?.[String(name)] ?? !available);
    const free = names.filter(may), action = typeof fallback === "function" ? fallback(free) : fallback;
    if (actions && !free.includes(action)) {
      throw new RangeError(`the fallback ${action} is not on offer; there are: ${free.join(", ")}`);
    }
    const only = actions ? names.map((name) => name === action) : [String(action)];
    const time = Date.now() / 1000;
    this.#keep("choose", { ...body, available: only, slot: FALLBACK, made_at: time } satisfies Choose, error);
    const event = body.event ?? null, probabilities = names.map((name) => Number(name === action));
    return {
      id: `${event}/${FALLBACK}`, event, slot: FALLBACK, index: names.indexOf(action), action,
      probability: 1, actions: names, probabilities, mean: null, spread: null,
      time, again: false, fallback: true,
    };
  }

  async #report(what: string, body: Learn | Add): Promise<boolean | null> {
    const content = json(body);
    const decided = this.#kept.some(({ body: kept }) => decisionOf(kept) === body.id);
    try {
      if (decided && await this.flush() > 0) throw new ServiceError("the service is away");
      return (await this.#request<New>("POST", what, content)).new as boolean;
    } catch (error) {
      if (!(error instanceof ServiceError && error.away)) throw error;
      this.#keep(what, body, error);
      return null;
    }
  }

  #keep(what: string, body: object, error: ServiceError): void {
    if (this.#kept.length >= this.#options.later) throw error;
    this.#kept.push({ what, body });
  }

  #send<T>(method: string, what: string, body?: unknown): Promise<T> {
    return this.#request<T>(method, what, body === undefined ? null : json(body));
  }

  async #request<T>(method: string, what: string, content: string | null): Promise<T> {
    const found = await this.#ask<T>(method, what, content, this.#options.retries);
    if (this.#kept.length) void this.flush();
    return found;
  }

  /** Send a request, again where that may help; the value of the answer. */
  async #ask<T>(method: string, what: string, body: string | null, retries: number): Promise<T> {
    for (let attempt = 0; ; attempt += 1) {
      let after = 0, failed: ServiceError;
      try {
        const signal = AbortSignal.timeout(this.#options.timeout);
        const about = { method, headers: this.#headers, body, signal };
        const answer = await this.#options.fetch(`${this.#url}/${what}`, about);
        const text = await answer.text();
        if (answer.ok) return JSON.parse(text) as T;
        failed = refused(`${method} ${what}`, answer.status, text);
        after = Number(answer.headers.get("retry-after")) || 0;
      } catch (error) {
        failed = new ServiceError(`the service cannot be reached, tried ${attempt + 1} times: ${error}`);
      }
      if (!failed.away || attempt >= retries) throw failed;
      // Longer each time, and not the same for everybody.
      const wait = Math.min(LONGEST, Math.max(1000 * after, 50 * 2 ** attempt));
      await new Promise((done) => setTimeout(done, wait * (0.75 + 0.5 * Math.random())));
    }
  }
}

/** The id of a decision that was made here. */
const decisionOf = (body: object): string => `${(body as Choose).event}/${FALLBACK}`;

function refused(where: string, status: number, text: string): ServiceError {
  let error: Failure["error"] | undefined;
  try {
    ({ error } = JSON.parse(text) as Failure);
  } catch { /* a proxy says it in words of its own */ }
  return new ServiceError(`${where}: ${status}, ${error?.message ?? text.slice(0, 200)}`, error?.code ?? "failed", status);
}

/** What actions are called: by their names, their `id` or `name`, or their place. */
function named(actions: Choose["actions"]): Label[] {
  if (!Array.isArray(actions)) return Object.keys(actions ?? {});
  for (const key of ["id", "name"]) {
    const names = actions.map((one) => (typeof one === "string" ? one : (one as Reply | null)?.[key]));
    if (names.every((name) => typeof name === "string" || Number.isInteger(name))) return names as Label[];
  }
  return actions.map((_, n) => n);
}

function newId(): string {
  const words = new Uint32Array(4).map(() => Math.random() * 2 ** 32);
  globalThis.crypto?.getRandomValues(words); // which Node 18 does not have
  return [...words].map((word) => word.toString(16).padStart(8, "0")).join("");
}

/** As JSON, in which a number that is none would become null. */
function json(body: unknown): string {
  return JSON.stringify(body, (name, value) => {
    if (typeof value === "number" && !Number.isFinite(value)) {
      throw new RangeError(`${name || "what is sent"} must be finite, got ${value}`);
    }
    return value;
  });
}
