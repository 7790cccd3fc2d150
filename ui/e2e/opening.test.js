// The first screen: paths with completion, dropped files and folders, tabs, swap, uploads that stop and go on, recent sessions.
import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { closeBrowser, closeTabs, compare, drop, eventually, open, page, scratch, serve, shots, TESTDATA } from "./harness.js";
import { numbers, safetensors } from "./data.js";

const folder = scratch();
let server, context;
before(async () => {
  server = await serve([], { roots: [folder] });
  context = await open();
});
afterEach(closeTabs);
after(async () => {
  await server.stop();
  await closeBrowser();
  rmSync(folder, { recursive: true, force: true });
});

const FAULTS = join(TESTDATA, "faults");

test("two typed paths are completed, compared and shown", async () => {
  const tab = await page(context, server);
  await tab.getByRole("heading", { name: "Where do two runs part ways?" }).waitFor();
  await shots(tab, "open");
  const reference = tab.getByLabel("Reference: path");
  await reference.fill(join(FAULTS, "refer"));
  await tab.getByRole("option", { name: /reference\.pth/ }).first().waitFor();
  await reference.press("ArrowDown");
  await eventually(() => reference.getAttribute("aria-activedescendant"), "reference-choice-0");
  await reference.press("Enter");
  await eventually(() => reference.inputValue(), (path) => /faults\/reference\.pth$/.test(path));
  const candidate = tab.getByLabel("Candidate: path");
  await candidate.fill(join(FAULTS, "rope"));
  await tab.getByRole("option", { name: /rope_theta/ }).first().click();
  await tab.getByTestId("go").click();
  await tab.getByTestId("first").waitFor();
  assert.match(tab.url(), /#\/s\//);
  tab.fine();
});

test("a path outside of the roots, and one that does not exist, are said", async () => {
  const tab = await page(context, server);
  await tab.getByLabel("Reference: path").fill("/etc/passwd");
  await tab.getByLabel("Candidate: path").fill(join(FAULTS, "nothing.pth"));
  await tab.getByLabel("Candidate: path").press("Escape");
  await tab.getByTestId("go").click();
  await tab.getByRole("alert").filter({ hasText: "/etc/passwd" }).first().waitFor();
  await tab.getByLabel("Reference: path").fill(join(FAULTS, "reference.pth"));
  await tab.getByTestId("go").click();
  await tab.getByRole("alert").filter({ hasText: "nothing.pth" }).first().waitFor();
  await shots(tab, "open-problem");
  tab.fine(["status of 4"]);
});

test("sides are swapped", async () => {
  const tab = await page(context, server);
  await tab.getByLabel("Reference: path").fill("one");
  await tab.getByLabel("Candidate: path").fill("two");
  await tab.getByRole("button", { name: "Swap sides" }).click();
  await eventually(() => tab.getByLabel("Reference: path").inputValue(), "two");
  await eventually(() => tab.getByLabel("Candidate: path").inputValue(), "one");
  tab.fine(["status of 4"]);
});

test("tabs follow what is given: an archive against a file is mixed, and shapes are tried first", async () => {
  const tab = await page(context, server);
  await tab.getByLabel("Reference: path").fill(join(TESTDATA, "sample/run.zip"));
  await tab.getByLabel("Candidate: path").fill(join(FAULTS, "reference.pth"));
  await tab.getByRole("tab", { name: "Mixed", selected: true }).waitFor();
  await eventually(() => tab.getByRole("radio", { name: /by shape/ }).isChecked(), true);
  await tab.getByRole("radio", { name: /by name/ }).check();
  await tab.getByLabel("Candidate: path").press("Escape");
  await tab.getByTestId("go").click();
  await tab.waitForURL(/#\/s\//);
  tab.fine();
});

test("one source is explored: its tensors, one of them, and all pairs", async () => {
  const tab = await page(context, server);
  await tab.getByRole("tab", { name: "Explore one" }).click();
  await tab.getByLabel("Source: path").fill(join(FAULTS, "nan_token.pth"));
  await tab.getByLabel("Source: path").press("Escape");
  await tab.getByTestId("go").click();
  const rows = tab.getByTestId("tensors").getByRole("row");
  await tab.getByRole("button", { name: "embed", exact: true }).waitFor();
  await eventually(() => rows.count(), (count) => count > 10);
  await shots(tab, "explore");
  await tab.getByLabel("Filter tensors").fill("layer_out");
  await tab.getByText(/\d+ NaN/).first().waitFor();
  await tab.getByRole("button", { name: "1_layer_out" }).click();
  await tab.getByTestId("cells-reference").waitFor();
  await tab.getByRole("button", { name: "Next NaN or Inf" }).click();
  await eventually(() => tab.getByTestId("status").innerText(), (text) => /value NaN/i.test(text));
  await tab.keyboard.press("Escape");
  await tab.getByTestId("all-pairs").click();
  await tab.getByTestId("pairs").waitFor();
  tab.fine();
});

test("dropped files are uploaded, compared, shown with their size and deleted with their session", async () => {
  const values = numbers(64);
  safetensors(join(folder, "a.safetensors"), { w: { shape: [8, 8], values } });
  safetensors(join(folder, "b.safetensors"), { w: { shape: [8, 8], values: values.map((value, at) => (at === 9 ? 3 : value)) } });
  const tab = await page(context, server);
  await tab.getByLabel("Reference: file").setInputFiles(join(folder, "a.safetensors"));
  await tab.getByLabel("Candidate: file").setInputFiles(join(folder, "b.safetensors"));
  await tab.getByText("ready").nth(1).waitFor();
  await tab.getByTestId("go").click();
  await tab.getByTestId("pairs").waitFor();
  await tab.getByRole("button", { name: /open another comparison/ }).click();
  await tab.getByText(/uploaded/).first().waitFor();
  const before = await (await fetch(`${server.url}/api/v1/uploads`)).json();
  await tab.getByRole("button", { name: "Delete a.safetensors / b.safetensors" }).click();
  await tab.getByText(/is deleted/).waitFor();
  const rest = await (await fetch(`${server.url}/api/v1/uploads`)).json();
  assert.equal(rest.length, before.length - 2);
  tab.fine();
});

test("a drop of two files fills both sides, a dropped folder arrives whole", async () => {
  const tab = await page(context, server);
  const transfer = await tab.evaluateHandle(() => {
    const data = new DataTransfer();
    data.items.add(new File(["not a tensor"], "first.npy"));
    data.items.add(new File(["neither"], "first.npy"));
    return data;
  });
  await tab.getByTestId("box-reference").dispatchEvent("dragover", { dataTransfer: transfer });
  await tab.getByTestId("box-reference").dispatchEvent("drop", { dataTransfer: transfer });
  await tab.getByText("ready").nth(1).waitFor();
  await tab.getByTestId("go").click();
  await tab.getByRole("alert").filter({ hasText: "first.npy" }).first().waitFor();
  tab.fine(["status of 4"]);
});

test("a folder is uploaded with its files", async () => {
  mkdirSync(join(folder, "shards/inner"), { recursive: true });
  safetensors(join(folder, "shards/x.safetensors"), { x: { shape: [2], values: [1, 2] } });
  safetensors(join(folder, "shards/inner/y.safetensors"), { y: { shape: [2], values: [1, 2] } });
  const tab = await page(context, server);
  await tab.getByRole("tab", { name: "Explore one" }).click();
  await tab.getByLabel("Source: folder").setInputFiles(join(folder, "shards"));
  await tab.getByText("2 files").waitFor();
  await tab.getByText("ready").waitFor();
  await tab.getByTestId("go").click();
  await tab.getByRole("button", { name: "inner/y.y" }).or(tab.getByRole("button", { name: /y$/ })).first().waitFor();
  tab.fine();
});

test("an upload shows its progress, is paused, resumed and cancelled", async () => {
  const path = join(folder, "large.npy");
  writeFileSync(path, Buffer.alloc(48 * 1024 * 1024, 1));
  const tab = await page(context, server);
  const link = await context.newCDPSession(tab);
  await link.send("Network.enable");
  await link.send("Network.emulateNetworkConditions", { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput: 512 * 1024 });
  await tab.getByLabel("Reference: file").setInputFiles(path);
  const bar = tab.getByRole("progressbar", { name: /Upload of large.npy/ });
  await bar.waitFor();
  await eventually(() => bar.evaluate((each) => each.value), (value) => value > 100_000);
  await tab.getByRole("button", { name: "Pause" }).click();
  await tab.getByText(/paused/).waitFor();
  await link.send("Network.emulateNetworkConditions", { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput: -1 });
  await tab.getByRole("button", { name: "Resume" }).click();
  await tab.getByText("ready").waitFor({ timeout: 60_000 });
  await tab.getByRole("button", { name: "Remove" }).click();
  await tab.getByLabel("Reference: path").waitFor();
  tab.fine();
});

test("an upload is cancelled in the middle and leaves nothing", async () => {
  const path = join(folder, "unwanted.npy");
  writeFileSync(path, Buffer.alloc(32 * 1024 * 1024, 1));
  const before = await (await fetch(`${server.url}/api/v1/uploads`)).json();
  const tab = await page(context, server);
  const link = await context.newCDPSession(tab);
  await link.send("Network.enable");
  await link.send("Network.emulateNetworkConditions", { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput: 512 * 1024 });
  await tab.getByLabel("Reference: file").setInputFiles(path);
  const bar = tab.getByRole("progressbar", { name: /Upload of unwanted.npy/ });
  await eventually(() => bar.evaluate((each) => each.value), (value) => value > 0);
  await tab.getByRole("button", { name: "Cancel" }).click();
  await tab.getByLabel("Reference: path").waitFor();
  await eventually(async () => (await (await fetch(`${server.url}/api/v1/uploads`)).json()).length, before.length);
  tab.fine();
});

test("what the desktop drops: files fill both sides, kinds choose the tab, a folder arrives whole", async () => {
  const archive = join(TESTDATA, "sample/run.zip");
  const tab = await page(context, server);
  await drop(tab, tab.getByTestId("box-reference"), [join(FAULTS, "reference.pth"), join(FAULTS, "tp4_f32.pth")]);
  await tab.getByText("ready").nth(1).waitFor();
  await tab.getByRole("tab", { name: "Compare", selected: true }).waitFor();
  for (const [side, name] of [["reference", "reference.pth"], ["candidate", "tp4_f32.pth"]]) await tab.getByTestId(`box-${side}`).getByText(name).waitFor();
  await tab.getByRole("button", { name: "Swap sides" }).click();
  await tab.getByTestId("box-reference").getByText("tp4_f32.pth").waitFor();
  await tab.getByTestId("box-candidate").getByRole("button", { name: "Remove" }).click();
  await drop(tab, tab.getByTestId("box-candidate"), [archive]);
  await tab.getByRole("tab", { name: "Mixed", selected: true }).waitFor();
  await tab.getByTestId("box-candidate").getByText("ready").waitFor();
  await shots(tab, "mixed");
  await tab.getByTestId("go").click();
  await tab.getByTestId("pairs").waitFor();

  mkdirSync(join(folder, "desktop/deep"), { recursive: true });
  safetensors(join(folder, "desktop/x.safetensors"), { x: { shape: [2], values: [1, 2] } });
  safetensors(join(folder, "desktop/deep/y.safetensors"), { y: { shape: [2], values: [1, 2] } });
  const one = await page(context, server);
  await one.getByRole("tab", { name: "Explore one" }).click();
  await drop(one, one.getByTestId("box-reference"), [join(folder, "desktop")]);
  await one.getByText("2 files").waitFor();
  await one.getByText("ready").waitFor();
  await one.getByLabel("compare every tensor with every other").check();
  await one.getByTestId("go").click();
  await one.getByTestId("pairs").waitFor();
  tab.fine();
  one.fine();
});

test("what is too large, and a disk that is full in the middle, name the file and say what to do; the server stays up", async () => {
  const path = join(folder, "too_large.npy");
  writeFileSync(path, Buffer.alloc(24 * 1024 * 1024, 1));
  const strict = await serve(["--max-upload", "1M"]);
  const full = await serve([], { fileLimit: 8 * 1024 * 1024 });
  try {
    const refused = await page(context, strict);
    await refused.getByLabel("Reference: file").setInputFiles(path);
    await refused.getByRole("alert").filter({ hasText: /too_large\.npy.*--max-upload allows 1048576.*type the path/s }).waitFor();
    refused.fine(["status of 4"]);

    const tab = await page(context, full);
    await tab.getByLabel("Reference: file").setInputFiles(path);
    await tab.getByRole("alert").filter({ hasText: /too_large\.npy.*8388608 of 25165824 bytes.*disk was full.*free some space and resume/s }).waitFor();
    await shots(tab, "full-disk");
    assert.equal((await fetch(`${full.url}/api/v1/server`)).status, 200);
    // What is too long for the disk cannot be noted either; it is said, and what was noted before is kept.
    const session = await compare(full, join(FAULTS, "reference.pth"), join(FAULTS, "tp4_f32.pth"));
    await tab.evaluate((hash) => (location.hash = hash), `#/s/${session}`);
    await tab.getByRole("button", { name: "Notes" }).click();
    const dialog = tab.getByTestId("notes-dialog");
    await dialog.getByLabel("Notes").fill("short");
    await dialog.getByRole("button", { name: "Save" }).click();
    await tab.getByText("Saved").waitFor();
    await tab.getByRole("button", { name: "Notes" }).click();
    await dialog.getByLabel("Notes").evaluate((box) => { box.value = "long ".repeat(2_000_000); box.dispatchEvent(new Event("input")); });
    await dialog.getByRole("button", { name: "Save" }).click();
    await tab.getByText(/state\.db.*the disk is full/).first().waitFor();
    assert.equal((await (await fetch(`${full.url}/api/v1/sessions/${session}`)).json()).notes, "short");
    tab.fine(["status of 5", "ERR_CONNECTION_RESET"]);
  } finally {
    await strict.stop();
    await full.stop();
  }
});

test("pairing, order, notes and settings survive a kill -9, and two sessions stay two", async () => {
  const state = scratch();
  const values = (seed) => ({ shape: [4, 4], values: numbers(16, seed) });
  safetensors(join(folder, "kept_a.safetensors"), { first: values(1), second: values(2), alpha: values(3) });
  safetensors(join(folder, "kept_b.safetensors"), { first: values(1), second: values(2), omega: values(3) });
  const [a, b] = [join(folder, "kept_a.safetensors"), join(folder, "kept_b.safetensors")];
  const first = await serve([], { state, roots: [folder] });
  const session = await compare(first, a, b, { settings: { rules: ["exact"] } });
  const other = await compare(first, b, a, { settings: { rules: ["exact"] } });
  const tab = await page(context, first, `#/s/${session}`);
  await tab.getByLabel("Group by").selectOption("none");
  await tab.keyboard.press("p");
  const pairing = tab.getByTestId("pair-dialog");
  await pairing.getByRole("radio", { name: "alpha" }).check();
  await pairing.getByRole("radio", { name: "omega" }).check();
  await pairing.getByRole("button", { name: "These are one tensor" }).click();
  const orderIn = (tab) => () => tab.locator('[data-key^="p:"]').evaluateAll((rows) => rows.toSorted((x, y) => x.ariaRowIndex - y.ariaRowIndex).map((row) => row.dataset.key.slice(2)));
  const [one, two, three] = await eventually(orderIn(tab), (found) => found.length === 3 && found.includes("alpha = omega"));
  await tab.locator(`[data-key="p:${three}"]`).click();
  await tab.getByTestId("pairs").focus();
  await tab.keyboard.press("Alt+ArrowUp");
  await tab.getByText(/moved to position 2 of 3/).waitFor();
  await tab.getByTestId("menu-pairing").click();
  await tab.getByRole("menuitem", { name: /Strategies/ }).click();
  await tab.getByTestId("strategies").getByLabel("Fuzzy threshold, number").fill("0.55");
  await tab.getByRole("button", { name: "Pair and compare anew" }).click();
  await tab.getByText("Settings changed").waitFor();
  await tab.getByRole("button", { name: "Notes" }).click();
  await tab.getByTestId("notes-dialog").getByLabel("Notes").fill("alpha is omega");
  await tab.getByTestId("notes-dialog").getByRole("button", { name: "Save" }).click();
  await tab.getByText("Saved").waitFor();
  tab.fine();
  await tab.close();
  await first.stop("SIGKILL");

  const second = await serve([], { state, roots: [folder] });
  try {
    const again = await page(context, second, `#/s/${session}`);
    await again.getByLabel("Group by").selectOption("none");
    // The comparison after the last edit may have been cut off by the kill: then it is gone on with.
    const compareNow = again.getByRole("button", { name: /Compare now|Go on/ });
    await again.locator('[data-key^="p:"]').first().or(compareNow).first().waitFor();
    if (await compareNow.isVisible()) await compareNow.click();
    await eventually(orderIn(again), [one, three, two]);
    await again.getByRole("button", { name: "Notes" }).click();
    await eventually(() => again.getByTestId("notes-dialog").getByLabel("Notes").inputValue(), "alpha is omega");
    await again.keyboard.press("Escape");
    const settings = await (await fetch(`${second.url}/api/v1/sessions/${session}/settings`)).json();
    assert.equal(settings.fuzzy_threshold, 0.55);
    const apart = await page(context, second, `#/s/${other}`);
    await apart.getByTestId("chip-leftover").waitFor();
    const untouched = await (await fetch(`${second.url}/api/v1/sessions/${other}`)).json();
    assert.deepEqual([untouched.notes, untouched.undo], ["", null]);
    again.fine();
    apart.fine();
  } finally {
    await second.stop();
    rmSync(state, { recursive: true, force: true });
  }
});

test("with a token the address opens once and the token leaves it; without it the page is not served", async () => {
  const own = await open();
  const started = await serve(["--token", "a-token-for-tests"]);
  try {
    const address = started.url.slice(0, started.url.indexOf("/?token="));
    assert.equal((await fetch(`${address}/api/v1/server`)).status, 401);
    const tab = await page(own, { url: address }, "?token=a-token-for-tests");
    await tab.getByRole("heading", { name: "Where do two runs part ways?" }).waitFor();
    assert.ok(!tab.url().includes("token"), tab.url());
    await tab.reload();
    await tab.getByRole("heading", { name: "Where do two runs part ways?" }).waitFor();
    tab.fine();
    await tab.close();
  } finally {
    await started.stop();
    await own.close();
  }
});

test("recent sessions outlive the server, also a killed one", async () => {
  const state = scratch();
  const first = await serve([], { state });
  await compare(first, join(FAULTS, "reference.pth"), join(FAULTS, "tp4_f32.pth"));
  await first.stop("SIGKILL");
  const second = await serve([], { state });
  const tab = await page(context, second);
  await tab.getByText("reference.pth / tp4_f32.pth").click();
  await tab.getByRole("heading", { name: /They agree|They part/ }).waitFor();
  tab.fine();
  await second.stop();
  rmSync(state, { recursive: true, force: true });
});

test("both on the command line open at once", async () => {
  const started = await serve([join(FAULTS, "reference.pth"), join(FAULTS, "nan_token.pth")]);
  const tab = await page(context, started);
  await tab.getByTestId("first").waitFor();
  tab.fine();
  await started.stop();
});
