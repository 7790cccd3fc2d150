import { chromium } from "playwright-core";
import { spawn } from "node:child_process";
const bin = process.env.BIN, dir = process.argv[2], ref = process.argv[3], cand = process.argv[4], out = process.argv[5];
const server = spawn(bin, ["serve", "--port", "0", "--no-open", "--state", `/tmp/page/state-${Date.now()}`, ref, cand], { cwd: dir });
const url = await new Promise((ok) => server.stdout.once("data", (d) => ok(String(d).trim())));
console.log(url);
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
const tab = await context.newPage();
tab.on("console", (m) => { if (m.type() === "error" || m.type() === "warning") console.log("CONSOLE", m.text()); });
tab.on("pageerror", (e) => console.log("PAGEERROR", e.message));
tab.on("response", (r) => { if (r.status() >= 400) console.log("HTTP", r.status(), r.url().replace(url, "")); });
const origin = new URL(url).origin;
await tab.goto(url);
await tab.waitForTimeout(2500);
const session = /s\/([^/?]+)/.exec(tab.url())?.[1];
const { pairs } = await (await fetch(`${origin}/api/v1/sessions/${session}/pairs`)).json();
await tab.screenshot({ path: `${out}-overview.png` });
for (const pair of pairs) {
  if (process.env.ONLY && !pair.name.match(process.env.ONLY)) continue;
  await tab.goto(`${origin}/#/s/${session}/pair/${encodeURIComponent(pair.key)}`);
  await tab.waitForTimeout(500);
  for (const name of ["Largest difference", "Next difference", "Next NaN or Inf"]) {
    const b = tab.getByRole("button", { name, exact: true });
    if (await b.count() && await b.isEnabled()) await b.click();
    await tab.waitForTimeout(150);
  }
  const status = (await tab.getByTestId("status").innerText()).replaceAll("\n", " | ");
  const stat = tab.getByTestId("statistics");
  if (await stat.count()) await stat.click();
  await tab.waitForTimeout(250);
  const problems = await tab.locator(".problem").allInnerTexts();
  console.log(pair.name.slice(0, 40), "=>", status, problems.length ? `PROBLEM ${problems.join("; ")}` : "");
  if (process.env.SHOT) await tab.screenshot({ path: `${out}-${pair.pair}.png`, fullPage: true });
}
await browser.close();
server.kill();
