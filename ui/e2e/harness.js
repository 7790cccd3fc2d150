// What every browser test stands on: the real binary on a port of its own, a browser, and the promises that hold on every screen
// (no console error, nothing asked of another origin).
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const here = dirname(fileURLToPath(import.meta.url));
export const ROOT = resolve(here, "../..");
export const TESTDATA = join(ROOT, "testdata");
export const SHOTS = join(here, "shots");
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** A folder that is gone at the end. */
export function scratch() {
  return mkdtempSync(join(tmpdir(), "twinscope-e2e-"));
}

/** `twinscope serve` with its own state; `stop` ends it. */
export async function serve(args = [], options = {}) {
  const state = options.state ?? scratch();
  const binary = process.env.TWINSCOPE_BIN ?? join(ROOT, "target/debug/twinscope");
  const child = spawn(binary, ["serve", ...args, "--port", "0", "--no-open", "--state", state, "--root", TESTDATA, ...(options.roots ?? []).flatMap((root) => ["--root", root])], { stdio: ["ignore", "pipe", "pipe"], cwd: ROOT });
  let said = "";
  child.stderr.on("data", (data) => (said += data));
  const url = await new Promise((done, failed) => {
    let out = "";
    child.stdout.on("data", (data) => {
      out += data;
      if (out.includes("\n")) done(out.trim());
    });
    child.on("exit", (code) => failed(new Error(`twinscope ended with ${code}: ${said}`)));
  });
  const stop = (signal = "SIGTERM") =>
    new Promise((done) => {
      child.removeAllListeners("exit");
      child.on("exit", () => {
        if (!options.state) rmSync(state, { recursive: true, force: true });
        done(undefined);
      });
      child.kill(signal);
    });
  return { url: url.replace(/\/$/, ""), state, stop };
}

let browser = null;
/** One browser for all tests of a file. */
export async function open({ width = 1440, height = 900, theme = "light" } = {}) {
  browser ??= await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: theme, acceptDownloads: true, permissions: ["clipboard-read", "clipboard-write"] });
  return context;
}

export async function closeBrowser() {
  await browser?.close();
  browser = null;
}

/** A page that fails its test when the console has an error or a request leaves the origin. */
export async function page(context, server, hash = "") {
  const tab = await context.newPage();
  const wrong = [];
  tab.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning") wrong.push(`${message.type()}: ${message.text()} (${message.location().url})`);
  });
  tab.on("pageerror", (error) => wrong.push(`uncaught: ${error.stack ?? error}`));
  tab.on("request", (request) => {
    const url = new URL(request.url());
    if (!["data:", "blob:"].includes(url.protocol) && url.origin !== server.url) wrong.push(`off-origin request: ${request.url()}`);
  });
  tab.setDefaultTimeout(30_000);
  await tab.goto(`${server.url}/${hash}`);
  return Object.assign(tab, {
    /** Nothing went wrong so far; `expected` are texts of errors that the test provoked. */
    fine(expected = []) {
      const rest = wrong.filter((line) => !expected.some((part) => line.includes(part)));
      assert.deepEqual(rest, []);
    },
  });
}

/** Asks the API to open two sources, waits until they are compared, and gives the session's id. */
export async function compare(server, reference, candidate, more = {}) {
  const answer = await fetch(`${server.url}/api/v1/open`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ reference: { path: reference }, ...(candidate ? { candidate: { path: candidate } } : {}), ...more }),
  });
  const session = await answer.json();
  assert.equal(answer.status, 201, JSON.stringify(session));
  for (;;) {
    const doc = await (await fetch(`${server.url}/api/v1/sessions/${session.session}`)).json();
    if (!["queued", "running"].includes(doc.state)) return session.session;
    await new Promise((done) => setTimeout(done, 50));
  }
}

/** Every rule of axe holds, in both themes. */
export async function accessible(tab, name) {
  for (const theme of ["light", "dark"]) {
    await setTheme(tab, theme);
    // Colours change softly: axe must see where they end.
    await tab.waitForFunction(() => document.getAnimations().every((animation) => animation.playState !== "running"));
    await tab.evaluate(AXE);
    const found = await tab.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
    const said = found.violations.map((violation) => `${violation.id}: ${violation.help}\n${violation.nodes.slice(0, 4).map((node) => `    ${node.html}\n    ${node.failureSummary}`).join("\n")}`);
    assert.deepEqual(said, [], `${name}, ${theme}`);
  }
  await setTheme(tab, "light");
}

export async function setTheme(tab, theme) {
  const shown = () => tab.evaluate(() => document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
  if ((await shown()) !== theme) await tab.getByTestId("theme").evaluate((button) => button.click());
  assert.equal(await shown(), theme);
}

/** A picture of the screen in both themes, to be looked at. */
export async function shots(tab, name) {
  mkdirSync(SHOTS, { recursive: true });
  for (const theme of ["light", "dark"]) {
    await setTheme(tab, theme);
    await tab.waitForTimeout(200);
    await tab.screenshot({ path: join(SHOTS, `${name}-${theme}.png`) });
  }
  await setTheme(tab, "light");
}
