// Renders a folder of templates with npm's @huggingface/jinja and says where it
// differs from what Jinja2 made (expected.json, by render.py):
//
//     npm ci && node compare.mjs ../templates
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Template } from "@huggingface/jinja";

const folder = process.argv[2] ?? "../templates";
const cases = JSON.parse(readFileSync(new URL("../cases.json", import.meta.url), "utf8"));
const expected = JSON.parse(readFileSync(join(folder, "expected.json"), "utf8"));
const now = new Date(2026, 10, 21, 7, 5, 9);

// The package reads the clock; the golden files have a clock that stands.
globalThis.Date = class extends Date {
  constructor(...given) {
    super(...(given.length ? given : [now]));
  }
};

const render = (template, variables) => {
  try {
    const text = template().render(variables);
    return createHash("sha256").update(text).digest("hex").slice(0, 16);
  } catch {
    return null;
  }
};

const total = { same: 0, "both refuse": 0, differs: 0, "only npm refuses": 0, "only Python refuses": 0 };
for (const [name, digests] of Object.entries(expected)) {
  const source = readFileSync(join(folder, `${name}.jinja`), "utf8");
  let parsed;
  const template = () => (parsed ??= new Template(source));
  const count = Object.fromEntries(Object.keys(total).map((key) => [key, 0]));
  cases.forEach(({ variables }, i) => {
    const text = render(template, variables);
    if (text === digests[i]) count[text === null ? "both refuse" : "same"]++;
    else if (text === null) count["only npm refuses"]++;
    else if (digests[i] === null) count["only Python refuses"]++;
    else count.differs++;
  });
  for (const key in total) total[key] += count[key];
  console.log(name.padEnd(40), Object.entries(count).map(([key, n]) => `${key} ${n}`).join(", "));
}
console.log("all".padEnd(40), Object.entries(total).map(([key, n]) => `${key} ${n}`).join(", "));
