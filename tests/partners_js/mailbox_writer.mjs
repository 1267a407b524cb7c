// A program of other people's that writes to a mailbox, with the lock library that they use.
//
// usage: node mailbox_writer.mjs FOLDER_OF_THE_PACKAGE INBOX_FILE WHO COUNT
//
// Appends COUNT entries with the ids WHO-0, WHO-1, … and prints each id when it is written. With COUNT `hold` it takes
// the lock (it prints `asking` before and `held` after) and keeps it until it is killed or its input ends; then it lets
// go and prints `left`, or `compromised` where it found out that its lock was broken. With COUNT `drain` it empties the file again and again and
// prints the ids that it took.

import { createRequire } from "node:module";
import { readFile, rename, writeFile } from "node:fs/promises";

const [folder, inbox, who, count] = process.argv.slice(2);
const lockfile = createRequire(`${folder}/`)("proper-lockfile");

let compromised = false;
const options = {
  lockfilePath: `${inbox}.lock`,
  realpath: false,
  retries: { retries: 400, factor: 1, minTimeout: 5, maxTimeout: 100, randomize: true },
  onCompromised: () => { compromised = true; },
};

async function change(work) {
  const release = await lockfile.lock(inbox, options);
  try {
    const entries = JSON.parse(await readFile(inbox, "utf8"));
    const left = work(entries);
    if (left) {
      const temporary = `${inbox}.${process.pid}.tmp`;
      await writeFile(temporary, JSON.stringify(left, null, 2), { mode: 0o600 });
      await rename(temporary, inbox);
    }
  } finally {
    await release();
  }
}

const say = (line) => process.stdout.write(`${line}\n`);

if (count === "hold") {
  say("asking");
  const release = await lockfile.lock(inbox, { ...options, stale: 2000, update: 1000 });
  say("held");
  process.stdin.resume();
  await new Promise((over) => process.stdin.on("end", over));
  if (!compromised) await release().catch(() => { compromised = true; });
  say(compromised ? "compromised" : "left");
} else if (count === "drain") {
  for (;;) {
    const taken = [];
    await change((entries) => {
      taken.push(...entries.map((entry) => entry.msg_id));
      return entries.length ? [] : null;
    });
    for (const id of taken) say(id);
  }
} else {
  for (let number = 0; number < Number(count); number += 1) {
    const entry = {
      from: who, text: "x".repeat(200), timestamp: new Date().toISOString(), read: false,
      type: "message", msg_id: `${who}-${number}`, msgV: 1,
    };
    await change((entries) => [...entries, entry]);
    say(entry.msg_id);
  }
  say("done");
}
