// What every browser test stands on: the real binary on a port of its own, a browser, and the promises that hold on every screen
// (no console error, nothing asked of another origin).
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { inflateSync } from "node:zlib";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const here = dirname(fileURLToPath(import.meta.url));
export const ROOT = resolve(here, "../..");
export const TESTDATA = join(ROOT, "testdata");
export const SHOTS = join(here, "shots");
/** `TWINSCOPE_E2E_SLOW=4`: every page computes at a quarter of its speed, as on a busy or small machine. */
const SLOW = Number(process.env.TWINSCOPE_E2E_SLOW ?? 1);
const PATIENCE = 30_000 * Math.max(1, SLOW);
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** A folder that is gone at the end. On the disk of the build: in a folder that lies in memory, a hole that is read takes memory. */
export function scratch() {
  mkdirSync(join(ROOT, "target"), { recursive: true });
  return mkdtempSync(join(ROOT, "target", "e2e-"));
}

const children = new Set();
/** `twinscope serve` with its own state; `stop` ends it. */
export async function serve(args = [], options = {}) {
  const state = options.state ?? scratch();
  const binary = process.env.TWINSCOPE_BIN ?? join(ROOT, "target/debug/twinscope");
  const given = ["serve", ...args, "--port", "0", "--no-open", "--state", state, "--root", TESTDATA, ...(options.roots ?? []).flatMap((root) => ["--root", root])];
  // No file may grow beyond the limit: to whoever writes it, the disk is full there.
  const limited = ["-c", `trap '' XFSZ; ulimit -f ${(options.fileLimit ?? 0) / 1024}; exec "$0" "$@"`, binary, ...given];
  const child = spawn(options.fileLimit ? "bash" : binary, options.fileLimit ? limited : given, { stdio: ["ignore", "pipe", "pipe"], cwd: ROOT });
  children.add(child);
  child.on("exit", () => children.delete(child));
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
        children.delete(child);
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

/** After the tests of a file: the browser, and servers that a failed test left behind. */
export async function closeBrowser() {
  await browser?.close();
  browser = null;
  for (const child of children) child.kill("SIGKILL");
}

const tabs = new Set();
/** After each test: its tabs must not take time from the next one. */
export async function closeTabs() {
  for (const tab of tabs) await tab.close();
  tabs.clear();
}

/** A page that fails its test when the console has an error or a request leaves the origin. */
export async function page(context, server, hash = "") {
  const tab = await context.newPage();
  tabs.add(tab);
  if (SLOW > 1) await (await context.newCDPSession(tab)).send("Emulation.setCPUThrottlingRate", { rate: SLOW });
  const wrong = [];
  tab.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning") wrong.push(`${message.type()}: ${message.text()} (${message.location().url})`);
  });
  tab.on("pageerror", (error) => wrong.push(`uncaught: ${error.stack ?? error}`));
  tab.on("request", (request) => {
    const url = new URL(request.url());
    if (!["data:", "blob:"].includes(url.protocol) && url.origin !== server.url) wrong.push(`off-origin request: ${request.url()}`);
  });
  tab.setDefaultTimeout(PATIENCE);
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

/** Reads until it is what was expected (a value, or a function that says so); fails with what was read last. */
export async function eventually(read, expected, said = "") {
  for (const until = Date.now() + PATIENCE; ; ) {
    const found = await read();
    try {
      if (typeof expected === "function") assert.ok(expected(found), `${said} ${JSON.stringify(found)}`);
      else assert.deepEqual(found, expected);
      return found;
    } catch (error) {
      if (Date.now() > until) throw error;
    }
    await new Promise((done) => setTimeout(done, 40));
  }
}

/** Everything that was asked for is there and drawn, and nothing moves any more but what always does. */
export async function settled(tab) {
  await tab.waitForFunction(() => {
    const still = (animation) => animation.playState !== "running" || animation.effect?.getTiming().iterations === Infinity;
    return document.fonts.status === "loaded" && document.querySelector('[aria-busy="true"]') === null && document.getAnimations().every(still);
  });
  await tab.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
}

/** Where it is, once it stays there: what is loaded above it would move it. */
export async function place(locator) {
  await locator.waitFor();
  let before = null;
  return eventually(async () => {
    const box = await locator.boundingBox();
    const same = box !== null && before !== null && box.x === before.x && box.y === before.y && box.width === before.width && box.height === before.height;
    before = box;
    return same ? box : null;
  }, (box) => box !== null);
}

/** What is really on screen: red, green and blue of every pixel, from a screenshot. */
export async function pixels(tab, clip) {
  const png = await tab.screenshot(clip ? { clip } : {});
  return decode(png);
}

/** A PNG of eight bits per channel, as browsers write them. */
export function decode(png) {
  assert.equal(png.subarray(1, 4).toString(), "PNG");
  const [width, height, depth, kind] = [png.readUInt32BE(16), png.readUInt32BE(20), png[24], png[25]];
  assert.ok(depth === 8 && (kind === 2 || kind === 6), `a PNG of depth ${depth} and colour type ${kind}`);
  const parts = [];
  for (let at = 8; at < png.length; at += 12 + png.readUInt32BE(at)) {
    if (png.subarray(at + 4, at + 8).toString() === "IDAT") parts.push(png.subarray(at + 8, at + 8 + png.readUInt32BE(at)));
  }
  const raw = inflateSync(Buffer.concat(parts));
  const each = kind === 6 ? 4 : 3;
  const line = width * each;
  const data = Buffer.alloc(line * height);
  for (let y = 0; y < height; y += 1) {
    const filter = raw[y * (line + 1)];
    for (let x = 0; x < line; x += 1) {
      const left = x >= each ? data[y * line + x - each] : 0;
      const up = y > 0 ? data[(y - 1) * line + x] : 0;
      const corner = x >= each && y > 0 ? data[(y - 1) * line + x - each] : 0;
      data[y * line + x] = raw[y * (line + 1) + 1 + x] + guess(filter, left, up, corner);
    }
  }
  const rgb = (x, y) => [...data.subarray((y * width + x) * each, (y * width + x) * each + 3)];
  return { width, height, rgb };
}

/** What PNG's filters expect of a byte, from its neighbours. */
function guess(filter, left, up, corner) {
  if (filter === 0) return 0;
  if (filter === 1) return left;
  if (filter === 2) return up;
  if (filter === 3) return (left + up) >> 1;
  const [a, b, c] = [Math.abs(up - corner), Math.abs(left - corner), Math.abs(left + up - 2 * corner)];
  return a <= b && a <= c ? left : b <= c ? up : corner;
}

/** How bright a picture is, from 0 to 255: of the middle one of its pixels, and of its brightest and darkest. */
export function brightness({ width, height, rgb }) {
  const all = [];
  for (let y = 0; y < height; y += 3) for (let x = 0; x < width; x += 3) all.push(rgb(x, y).reduce((sum, value) => sum + value, 0) / 3);
  all.sort((a, b) => a - b);
  return { darkest: all[0], middle: all[all.length >> 1], brightest: all[all.length - 1] };
}

/** Files and folders of the disk dropped onto an element, as the desktop would. */
export async function drop(tab, locator, paths) {
  const box = await place(locator);
  const link = await tab.context().newCDPSession(tab);
  const data = { items: [], files: paths, dragOperationsMask: 1 };
  for (const type of ["dragEnter", "dragOver", "drop"]) {
    await link.send("Input.dispatchDragEvent", { type, x: box.x + box.width / 2, y: box.y + 24, data });
  }
  await link.detach();
}

export async function setTheme(tab, theme) {
  const shown = () => tab.evaluate(() => document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
  if ((await shown()) !== theme) await tab.getByTestId("theme").evaluate((button) => button.click());
  await eventually(shown, theme);
}

/** A screen in both themes: every rule of axe holds, and there is a picture of it to be looked at. */
export async function shots(tab, name) {
  mkdirSync(SHOTS, { recursive: true });
  for (const theme of ["light", "dark"]) {
    await setTheme(tab, theme);
    // Colours change softly: axe must see where they end.
    await settled(tab);
    await tab.screenshot({ path: join(SHOTS, `${name}-${theme}.png`) });
    await tab.evaluate(AXE);
    const found = await tab.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
    const said = found.violations.map((violation) => `${violation.id}: ${violation.help}\n${violation.nodes.slice(0, 4).map((node) => `    ${node.html}\n    ${node.failureSummary}`).join("\n")}`);
    assert.deepEqual(said, [], `${name}, ${theme}`);
  }
  await setTheme(tab, "light");
}
