// With the keyboard alone from two paths to a value; the palette and the sheet of keys; reports out and in.
import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import { readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { closeBrowser, closeTabs, compare, eventually, open, page, scratch, serve, shots, TESTDATA } from "./harness.js";

const folder = scratch();
const FAULTS = join(TESTDATA, "faults");
let server, context, session;
before(async () => {
  server = await serve();
  context = await open();
  session = await compare(server, join(FAULTS, "reference.pth"), join(FAULTS, "rope_theta.over_bf16.pth"));
});
afterEach(closeTabs);
after(async () => {
  await server.stop();
  await closeBrowser();
  rmSync(folder, { recursive: true, force: true });
});

test("from two paths to a value without a mouse", async () => {
  const tab = await page(context, server);
  await tab.getByRole("heading", { name: "Where do two runs part ways?" }).waitFor();
  const focused = () => tab.evaluate(() => {
    const element = document.activeElement;
    return element === null || element === document.body ? "" : (element.getAttribute("aria-label") ?? element.textContent ?? "");
  });
  const reach = async (label) => {
    for (let step = 0; step < 40; step += 1) {
      if ((await focused()).includes(label)) return;
      await tab.keyboard.press("Tab");
    }
    assert.fail(`${label} is not reached with Tab`);
  };
  await reach("Reference: path");
  await tab.keyboard.type(join(FAULTS, "reference.pth"));
  await tab.keyboard.press("Escape");
  await reach("Candidate: path");
  await tab.keyboard.type(join(FAULTS, "q_bias_missing.over_bf16.pth"));
  await tab.keyboard.press("Escape");
  await tab.keyboard.press("Enter");
  const first = tab.getByTestId("first");
  // While it runs what diverged first may still change.
  await tab.getByText("They part at").waitFor();
  const name = await first.getAttribute("title");
  const selected = async (key) => (await tab.locator('[role="row"][aria-selected="true"]').getAttribute("data-key"))?.startsWith(`p:${key} = `);
  await tab.keyboard.press("f");
  await eventually(() => selected(name), true);
  await reach("Pairs");
  await tab.keyboard.press("ArrowDown");
  await eventually(() => selected(name), false);
  await tab.keyboard.press("[");
  await eventually(() => selected(name), true);
  await tab.keyboard.press("]");
  await tab.keyboard.press("[");
  await eventually(() => selected(name), true);
  // No waiting from here on: whoever types fast on a slow machine is not behind the page.
  await tab.keyboard.press("Enter");
  await tab.keyboard.press("m");
  await tab.keyboard.press("1");
  // The hint that stands there before has the word, not the number.
  await eventually(() => tab.getByTestId("status").innerText(), (text) => /difference [−\d]/.test(text));
  await tab.waitForURL((url) => url.hash.includes(encodeURIComponent(`${name} = `)));
  await tab.getByRole("button", { name: "1-D", pressed: true }).waitFor();
  await tab.keyboard.press("2");
  await tab.getByRole("button", { name: "2-D", pressed: true }).waitFor();
  await tab.keyboard.press("s");
  await tab.getByText("max ULP").waitFor();
  await tab.keyboard.press("]");
  await tab.keyboard.press("g");
  await eventually(focused, "Go to an index");
  assert.ok(!new URL(tab.url()).hash.includes(encodeURIComponent(`${name} = `)), "the next bad pair is another one");
  await tab.keyboard.type("0, 0");
  await tab.keyboard.press("Escape");
  await eventually(focused, "");
  await tab.keyboard.press("Escape");
  await tab.getByTestId("pairs").waitFor();
  await tab.keyboard.press("/");
  await eventually(focused, "Filter");
  tab.fine();
});

test("the palette finds pairs and commands, the sheet lists the keys", async () => {
  const tab = await page(context, server, `#/s/${session}`);
  await tab.getByTestId("first").waitFor();
  await tab.keyboard.press("Control+k");
  await tab.getByTestId("palette").fill("1qfinal");
  await tab.getByRole("option", { name: /1_query_final/ }).first().waitFor();
  await shots(tab, "palette");
  await tab.getByTestId("palette").focus();
  await tab.keyboard.press("Enter");
  await tab.waitForURL(/1_query_final/);
  await tab.keyboard.press("?");
  await tab.getByRole("heading", { name: "Keyboard" }).waitFor();
  await shots(tab, "shortcuts");
  await tab.keyboard.press("Escape");
  await tab.keyboard.press("Control+k");
  await tab.getByTestId("palette").fill("dark theme");
  await tab.keyboard.press("Enter");
  await tab.waitForFunction(() => document.documentElement.dataset.theme === "dark");
  await tab.keyboard.press("t");
  tab.fine();
});

test("a report goes out as HTML, JSON and CSV, opens from disk without a server, and comes back in", async () => {
  const tab = await page(context, server, `#/s/${session}`);
  await tab.getByTestId("first").waitFor();
  const saved = {};
  for (const [item, name] of [["One HTML file", "report.html"], ["JSON", "report.json"], ["CSV", "report.csv"]]) {
    await tab.getByTestId("menu-report").click();
    const [download] = await Promise.all([tab.waitForEvent("download"), tab.getByRole("menuitem", { name: item }).click()]);
    saved[name] = join(folder, name);
    await download.saveAs(saved[name]);
  }
  assert.equal(JSON.parse(readFileSync(saved["report.json"], "utf8")).verdict, "diverged");
  assert.match(readFileSync(saved["report.csv"], "utf8"), /0_query/);

  const alone = await context.newPage();
  const wrong = [];
  alone.on("console", (message) => message.type() === "error" && wrong.push(message.text()));
  alone.on("pageerror", (error) => wrong.push(String(error)));
  alone.on("request", (request) => !request.url().startsWith("file:") && !request.url().startsWith("data:") && wrong.push(request.url()));
  await alone.goto(pathToFileURL(saved["report.html"]).href);
  await alone.getByTestId("first").waitFor();
  await alone.getByTestId("first").click();
  await alone.getByTestId("statistics").click();
  await alone.getByText("max ULP").waitFor();
  assert.deepEqual(wrong, []);
  await alone.screenshot({ path: join(folder, "alone.png") });

  for (const name of ["report.json", "report.html"]) {
    const back = await page(context, server);
    await back.getByLabel("Report").setInputFiles(saved[name]);
    await back.getByTestId("first").click();
    await back.getByText("This report came without its data").waitFor();
    back.fine();
  }
  tab.fine();
});

test("ten tabs of one browser all load, and a closed one hands over", async () => {
  const tabs = [];
  for (let nth = 0; nth < 10; nth += 1) {
    const tab = await page(context, server, `#/s/${session}`);
    await tab.getByTestId("first").waitFor();
    tabs.push(tab);
  }
  // The first tab holds the stream; once it is gone another one has to hear what the last tab does.
  await tabs[0].close();
  await tabs[9].reload();
  await tabs[9].getByTestId("first").waitFor();
  await tabs[9].getByRole("button", { name: "Notes" }).click();
  const dialog = tabs[9].getByTestId("notes-dialog");
  await dialog.getByLabel("Name").fill("seen by all");
  await dialog.getByRole("button", { name: "Save" }).click();
  for (const tab of tabs.slice(1)) await eventually(() => tab.title(), (title) => title.startsWith("seen by all"));
  for (const tab of tabs.slice(1)) tab.fine();
});

test("when the server is gone the page says so and lives", async () => {
  const own = await serve();
  const mine = await compare(own, join(FAULTS, "reference.pth"), join(FAULTS, "tp4_f32.pth"));
  const tab = await page(context, own, `#/s/${mine}`);
  await tab.getByTestId("pairs").waitFor();
  await own.stop("SIGKILL");
  await tab.getByRole("alert").filter({ hasText: "The server does not answer" }).waitFor();
  await tab.getByTestId("pairs").waitFor();
  await tab.getByRole("button", { name: "Pin current order" }).click();
  await tab.getByText("the server does not answer").first().waitFor();
  assert.equal(await tab.getByText("This order is pinned").count(), 0, "nothing is said to be done that was not");
  await tab.getByRole("textbox", { name: "Filter" }).fill("query");
  await tab.getByText(/\d+ of 52 pairs/).waitFor();
});
