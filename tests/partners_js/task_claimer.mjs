// A program of other people's that works on a shared task list, with the lock library that they use.
//
// usage: node task_claimer.mjs FOLDER_OF_THE_PACKAGE LIST_FOLDER WHO COUNT
//
// Prints `ready`, and waits for a line. Then it makes COUNT tasks under the list's lock, writing each in place, and claims
// what is free under the lock of the one task until nothing is. It prints `created ID` and `claimed ID`, at last `none`.

import { createRequire } from "node:module";
import { once } from "node:events";
import { readFile, readdir, writeFile } from "node:fs/promises";

const [folder, list, who, count] = process.argv.slice(2);
const lockfile = createRequire(`${folder}/`)("proper-lockfile");
const options = { retries: { retries: 400, factor: 1, minTimeout: 5, maxTimeout: 100, randomize: true } };
const say = (line) => process.stdout.write(`${line}\n`);

async function locked(file, work) {
  const release = await lockfile.lock(file, options);
  try {
    return await work();
  } finally {
    await release();
  }
}

async function ids() {
  const names = await readdir(list);
  return names.filter((name) => /^\d+\.json$/.test(name)).map((name) => parseInt(name, 10)).sort((a, b) => a - b);
}

async function task(id) {
  try {
    return JSON.parse(await readFile(`${list}/${id}.json`, "utf8"));
  } catch {
    return null;
  }
}

async function create(subject) {
  await writeFile(`${list}/.lock`, "", { flag: "wx" }).catch(() => {});
  await locked(`${list}/.lock`, async () => {
    const mark = parseInt(await readFile(`${list}/.highwatermark`, "utf8").catch(() => "0"), 10) || 0;
    const id = String(Math.max(mark, ...(await ids())) + 1);
    const made = { id, subject, description: "", status: "pending", blocks: [], blockedBy: [] };
    await writeFile(`${list}/${id}.json`, JSON.stringify(made, null, 2));
    say(`created ${id}`);
  });
}

async function claim(id) {
  return locked(`${list}/${id}.json`, async () => {
    const found = await task(id);
    if (!found || found.owner || found.status !== "pending") return false;
    await writeFile(`${list}/${id}.json`, JSON.stringify({ ...found, owner: who, status: "in_progress" }, null, 2));
    say(`claimed ${id}`);
    return true;
  });
}

say("ready");
await once(process.stdin, "data");
for (let number = 0; number < Number(count); number += 1) await create(`${who} ${number}`);
for (;;) {
  let taken = false;
  for (const id of await ids()) {
    const found = await task(id);
    if (found && !found.owner && found.status === "pending") taken = (await claim(id)) || taken;
  }
  if (!taken) break;
}
say("none");
process.exit(0);
