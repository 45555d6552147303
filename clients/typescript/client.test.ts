// Against a service that runs: `SERVICE=http://127.0.0.1:8000 node --test client.test.ts`.

import assert from "node:assert/strict";
import test from "node:test";
import { Client, ServiceError } from "./client.ts";
import type { Options } from "./client.ts";

const SERVICE = process.env["SERVICE"] ?? "";
const OFFER = { news: { kind: "politics" }, match: { kind: "sport" } };

/** Fates of requests, one after another: sent and answered, answer lost, or never sent. */
type Fate = "well" | "lost" | "away" | number;

function client(fates: Fate[] = [], options: Options = {}) {
  const sent: string[] = [];
  const through: typeof fetch = async (input, about) => {
    const fate = fates.length > 1 ? fates.shift() : fates[0] ?? "well";
    sent.push(String(about?.body));
    if (fate === "away") throw new TypeError("fetch failed");
    if (typeof fate === "number") return new Response("{}", { status: fate });
    const answer = await fetch(input, about);
    if (fate === "lost") throw new TypeError("the answer was lost");
    return answer;
  };
  return { sent, asks: new Client(SERVICE, { fetch: through, timeout: 60_000, ...options }) };
}

/** How many decisions there are with one that this makes: ids end in the number of a decision. */
async function count(): Promise<number> {
  return Number((await client().asks.choose(OFFER)).id.split("-").pop()) + 1;
}

test("decisions, outcomes and the rest", async () => {
  const { asks } = client();
  const made = await asks.choose(OFFER, { context: { device: "phone" }, subject: "ann" });
  assert.ok(String(made.action) in OFFER);
  assert.equal(made.probability, made.probabilities[made.index]);
  assert.equal(made.fallback, false);
  assert.equal(await asks.learn(made.id, 1), true);
  assert.equal(await asks.learn(made.id, 1), false);
  assert.equal(await asks.correct(made.id, 0.5), true);
  const several = await asks.chooseMany([{ actions: OFFER, event: "e1" }, { actions: OFFER }]);
  assert.equal((await asks.choose(OFFER, { event: "e1" })).id, several[0]?.id);
  assert.deepEqual(await asks.learnMany([["e1", 1], [several[1]?.id ?? "", 0]]), [true, true]);
  const other = await asks.choose(OFFER, { available: ["match"] });
  assert.equal(other.action, "match");
  assert.equal(await asks.add(other.id, 2, "order"), true);
  assert.equal(await asks.add(other.id, 2, "order"), false);
  await asks.choose(OFFER);
  assert.equal(await asks.expire(0, 0), 1);
  const { probabilities } = await asks.predict(OFFER);
  assert.ok(Math.abs(probabilities.reduce((sum, one) => sum + one, 0) - 1) < 1e-5);
  assert.ok("decisions" in await asks.summary());
  assert.equal((await asks.explain(made.id, 2))["action"], made.action);
  assert.equal((await asks.log())["id"]?.length, 5);
  assert.deepEqual((await asks.log(2, 2))["id"], (await asks.log())["id"]?.slice(2, 4));
  assert.equal(await asks.erase("ann"), 1);
});

test("what is sent again is not counted again", async () => {
  const before = await count();
  for (const fates of [["lost", "well"], ["away", "lost", 503, "well"], [429, "lost", 408, "well"]] as Fate[][]) {
    const { asks, sent } = client([...fates]);
    const made = await asks.choose(OFFER);
    assert.equal(new Set(sent).size, 1);
    assert.equal(sent.length, fates.length);
    const learns = client([...fates]).asks;
    assert.equal(await learns.learn(made.id, 1), false); // it was counted when the answer was lost
  }
  assert.equal(await count(), before + 3 + 1);
});

test("while the service is away the fallback decides, and what came of it is told later", async () => {
  const fates: Fate[] = ["away"], { asks } = client(fates, { retries: 0 });
  const context = { device: "phone" };
  await assert.rejects(asks.choose(OFFER, { context }), (error: ServiceError) => error.away);
  const made = await asks.choose(OFFER, { context, fallback: "match" });
  assert.deepEqual([made.action, made.index, made.probability, made.fallback], ["match", 1, 1, true]);
  assert.equal(await asks.learn(made.id, 1), null);
  const first = await asks.choose([{ id: 7 }, { id: 9 }], { fallback: (names) => names[0] ?? "" });
  assert.equal(first.action, 7);
  const free = await asks.choose(OFFER, { available: { news: false, match: true }, fallback: (names) => names[0] ?? "" });
  assert.equal(free.action, "match");
  assert.equal(asks.waiting, 4);
  assert.equal(await asks.flush(), 4);
  fates[0] = "well";
  const before = await count();
  assert.equal(await asks.learn(first.id, 0), true); // after the decisions that waited
  assert.equal(asks.waiting, 0);
  const log = await asks.log(before);
  assert.equal(log["id"]?.length, 3);
  assert.deepEqual(log["action"], ["match", 7, "match"]);
  assert.deepEqual(log["probability"], [1, 1, 1]);
  assert.deepEqual(log["outcome"], [1, 0, null]);
  assert.deepEqual(log["context"]?.[0], context);
});

test("a report is sent once, though the answer to it is lost", async () => {
  const fates: Fate[] = ["away"], { asks } = client(fates, { retries: 0 });
  const before = await count();
  const made = await asks.choose(OFFER, { fallback: "news" });
  await asks.learn(made.id, 1);
  fates[0] = "lost";
  assert.equal(await asks.flush(), 2);
  fates[0] = "well";
  assert.equal(await asks.flush(), 0);
  const log = await asks.log(before);
  assert.deepEqual([log["id"]?.length, log["outcome"]], [1, [1]]);
});

test("reports that the service refuses are said, and more than are kept are errors", async () => {
  const lost: string[] = [], fates: Fate[] = ["away"];
  const { asks } = client(fates, { retries: 0, later: 2, lost: (error, what) => lost.push(`${what} ${error}`) });
  assert.equal(await asks.learn("nothing", 1), null);
  assert.equal(await asks.add("nothing", 1), null);
  await assert.rejects(asks.learn("nothing", 1), /cannot be reached, tried 1 times/);
  await assert.rejects(asks.choose(OFFER, { fallback: "news" }), ServiceError);
  fates[0] = "well";
  assert.equal(await asks.flush(), 0);
  assert.match(lost.join(), /^outcome .*404, there is no decision 'nothing',add .*404/);
});

test("what it earns, what else comes of it, and settings", async () => {
  const fates: Fate[] = ["well"], { asks } = client(fates, { retries: 0 });
  assert.equal((await asks.configure({ holdback: 0.5, guard: { margin: [">=", 0] } })).holdback, 0.5);
  const made = await asks.choose(OFFER, { context: { device: "phone" } });
  assert.equal(await asks.observe(made.id, { margin: 3 }), true);
  assert.equal(await asks.observe(made.id, { margin: 3 }), false);
  assert.equal(await asks.learn(made.id, 1), true);
  assert.equal((await asks.lift()).decisions, 1);
  assert.equal((await asks.lift("margin", true)).parts?.length, 1);
  assert.deepEqual((await asks.metrics()).map((one) => [one.name, one.guard, one.broken]), [["margin", [">=", 0], false]]);
  fates[0] = "away"; // what is decided here is no part of the comparison, and learned all the same
  const own = await asks.choose(OFFER, { fallback: "match" });
  assert.equal(await asks.learn(own.id, 100), null);
  await new Promise((done) => setTimeout(done, 1200));
  fates[0] = "well";
  assert.equal(await asks.flush(), 0);
  assert.equal((await asks.lift()).decisions, 1);
  const last = await asks.log((await count()) - 2, 1);
  assert.deepEqual([last["action"], last["outcome"], last["probability"]], [["match"], [100], [1]]);
  assert.ok(Math.abs(Number(last["time"]?.[0]) - own.time) < 0.01);
  assert.ok((await asks.segments("device")).parts.some((one) => one.name === "phone"));
  assert.equal((await asks.configure({ holdback: 0 })).holdback, 0);
  assert.equal((await asks.settings()).fallback, false);
  assert.equal(await asks.resume(), false);
});

test("mistakes are said and not tried again", async () => {
  const { asks, sent } = client();
  await assert.rejects(asks.learn("nothing", 1), { name: "ServiceError", code: "unknown", status: 404 });
  await assert.rejects(asks.choose(OFFER, { context: { age: NaN } }), /age must be finite, got NaN/);
  await assert.rejects(async () => asks.learn("nothing", Infinity), /outcome must be finite/);
  assert.equal(sent.length, 1);
  const closed = client(["away"], { retries: 0 }).asks;
  await assert.rejects(closed.choose(OFFER, { fallback: "tea" }), /the fallback tea is not on offer; there are: news, match/);
  await assert.rejects(new Client(SERVICE, { bandit: "nobody" }).summary(), /no bandit 'nobody'/);
  assert.throws(() => new Client("localhost:8000"), /http:\/\//);
  assert.throws(() => new Client(SERVICE, { key: "es_\n" }), /as `ensemble-sampling keys create` prints it/);
  assert.throws(() => new Client(SERVICE, { timeout: NaN }), /timeout must be 0 or more, got NaN/);
});
