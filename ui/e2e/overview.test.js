// The overview: the headline, the curve, groups, sorting, filtering, order, pairing by hand.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { accessible, closeBrowser, compare, open, page, scratch, serve, shots, TESTDATA } from "./harness.js";
import { many, numbers, safetensors, sparse } from "./data.js";

const folder = scratch();
const FAULTS = join(TESTDATA, "faults");
let server, context, session, left;
before(async () => {
  server = await serve([], { roots: [folder] });
  context = await open();
  session = await compare(server, join(FAULTS, "reference.pth"), join(FAULTS, "rope_theta.over_bf16.pth"));
  const values = (seed) => ({ shape: [4, 4], values: numbers(16, seed) });
  safetensors(join(folder, "left_a.safetensors"), { "enc.0.weight": values(1), "enc.1.weight": values(2), "alpha": { shape: [3], values: [1, 2, 3] }, "<img src=x onerror=alert(1)>": values(4) });
  safetensors(join(folder, "left_b.safetensors"), { "enc.0.weight": values(1), "enc.1.weight": values(2), "omega": { shape: [5], values: [1, 2, 3, 4, 5] }, "other": { shape: [7], values: numbers(7) } });
  left = { reference: join(folder, "left_a.safetensors"), candidate: join(folder, "left_b.safetensors") };
});
after(async () => {
  await closeBrowser();
  await server.stop();
  rmSync(folder, { recursive: true, force: true });
});

const rowsOf = (tab) => tab.getByTestId("pairs").locator('[role="row"][data-key^="p:"]');
const names = (tab) => rowsOf(tab).evaluateAll((rows) => rows.toSorted((a, b) => Number(a.getAttribute("aria-rowindex")) - Number(b.getAttribute("aria-rowindex"))).map((row) => row.dataset.key.slice(2).split(" = ")[0]));

test("the headline says where they part and why; groups are closed but the one of the first divergence", async () => {
  const tab = await page(context, server, `#/s/${session}`);
  await tab.getByTestId("first").waitFor();
  const first = (await tab.getByTestId("first").getAttribute("title")) ?? "";
  const shown = await names(tab);
  assert.ok(shown.includes(first), `${first} is not among ${shown}`);
  assert.equal(await tab.locator('[role="row"][aria-expanded="true"]').count(), 1);
  await accessible(tab, "overview");
  await shots(tab, "overview");
  await tab.getByRole("button", { name: "Expand all groups" }).click();
  assert.ok((await names(tab)).length > 10);
  await tab.getByRole("button", { name: "Collapse all groups" }).click();
  assert.equal((await names(tab)).length, 0);
  tab.fine();
});

test("dark is dark", async () => {
  const dark = await open({ theme: "dark" });
  const tab = await page(dark, server, `#/s/${session}`);
  await tab.getByTestId("first").waitFor();
  const { data } = await tab.evaluate(async () => {
    const style = getComputedStyle(document.body).backgroundColor;
    return { data: style.match(/\d+/g).map(Number) };
  });
  assert.ok(Math.max(...data.slice(0, 3)) < 60, `the background is ${data}`);
  const pixel = await tab.screenshot({ clip: { x: 2, y: 60, width: 4, height: 4 } });
  assert.ok(pixel.length > 0);
  await tab.getByTestId("theme").click();
  const light = await tab.evaluate(() => getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number));
  assert.ok(Math.min(...light.slice(0, 3)) > 200, `the background is ${light}`);
  await dark.close();
});

test("the curve is navigation: click, arrows and Enter", async () => {
  const tab = await page(context, server, `#/s/${session}`);
  const curve = tab.getByTestId("curve");
  await curve.waitFor();
  const box = await curve.boundingBox();
  await tab.mouse.move(box.x + box.width * 0.7, box.y + 60);
  await tab.mouse.click(box.x + box.width * 0.7, box.y + 60);
  const before = await curve.getAttribute("aria-valuenow");
  await curve.focus();
  await curve.press("ArrowRight");
  assert.equal(Number(await curve.getAttribute("aria-valuenow")), Number(before) + 1);
  await curve.press("Enter");
  await tab.waitForURL(/\/pair\//);
  tab.fine();
});

test("counts are filters, and grouping, sorting and filtering combine and keep the selection", async () => {
  const tab = await page(context, server, `#/s/${session}`);
  await tab.getByTestId("chip-diverged").click();
  const foot = tab.getByText(/\d+ of 52 pairs/);
  const bad = await foot.innerText();
  assert.notEqual(bad, "0 of 52 pairs");
  await tab.getByLabel("Group by").selectOption("none");
  await tab.getByLabel("Sort by").selectOption("largest");
  assert.equal(await foot.innerText(), bad);
  await rowsOf(tab).first().click();
  const peek = await tab.getByTestId("peek").innerText();
  for (const grouping of ["file", "pattern", "similarity", "verdict", "layer", "none"]) {
    await tab.getByLabel("Group by").selectOption(grouping);
    assert.equal(await tab.getByTestId("peek").innerText(), peek);
  }
  for (const sorting of ["name", "best", "size", "largest", "execution"]) {
    await tab.getByLabel("Sort by").selectOption(sorting);
    assert.equal(await foot.innerText(), bad);
  }
  await tab.getByTestId("chip-diverged").click();
  const box = tab.getByRole("textbox", { name: "Filter" });
  for (const [text, some] of [["query", /query/], ["/^0_/", /^0_/], ["shape:[2, 11, 48]", /./], ["dtype:bf16", /./], ["rel>1e-1", /./], ["-query", /^(?!.*query)/]]) {
    await box.fill(text);
    const found = await names(tab);
    assert.ok(found.length > 0 && found.every((name) => some.test(name)), `${text}: ${found}`);
  }
  await box.fill("/(/");
  await tab.getByRole("alert").waitFor();
  await box.fill("nothing is called this");
  await tab.getByText("Nothing fits the filter").waitFor();
  await tab.getByRole("button", { name: "Show everything" }).click();
  await tab.getByRole("button", { name: "What can be filtered" }).click();
  await tab.getByText("Everything written must hold").waitFor();
  tab.fine();
});

test("rows are moved by dragging and by keys, undone, redone, pinned", async () => {
  const own = await compare(server, join(FAULTS, "reference.pth"), join(FAULTS, "tp4_f32.pth"));
  const tab = await page(context, server, `#/s/${own}`);
  await tab.getByLabel("Group by").selectOption("none");
  await rowsOf(tab).first().waitFor();
  const before = await names(tab);
  const grip = rowsOf(tab).filter({ hasText: before[0] }).first().locator(".grip");
  const [from, to] = [await grip.boundingBox(), await rowsOf(tab).filter({ hasText: before[3] }).first().boundingBox()];
  await tab.mouse.move(from.x + 8, from.y + 10);
  await tab.mouse.down();
  await tab.mouse.move(to.x + 8, to.y + 10, { steps: 6 });
  await tab.mouse.move(to.x + 8, to.y + 28, { steps: 3 });
  await tab.mouse.up();
  await tab.getByText(/moved to position 4 of/).waitFor();
  assert.deepEqual((await names(tab)).slice(0, 4), [before[1], before[2], before[3], before[0]]);
  await tab.getByRole("button", { name: "Undo", exact: true }).first().click();
  await tab.waitForFunction((name) => document.querySelector('[data-key^="p:"][aria-rowindex="2"]')?.dataset.key.startsWith(`p:${name}`), before[0]);
  await tab.getByRole("button", { name: "Redo" }).click();
  await tab.waitForFunction((name) => document.querySelector('[data-key^="p:"][aria-rowindex="2"]')?.dataset.key.startsWith(`p:${name}`), before[1]);
  await rowsOf(tab).filter({ hasText: before[0] }).first().click();
  await tab.getByTestId("pairs").focus();
  await tab.keyboard.press("Alt+ArrowUp");
  await tab.getByText(/moved to position 3 of/).waitFor();
  await tab.getByLabel("Sort by").selectOption("name");
  await tab.getByText(/pin this order to move rows/).first().waitFor();
  const top = () => tab.getByTestId("pairs").evaluate((list) => list.scrollTo(0, 0));
  await top();
  const sorted = (await names(tab)).slice(0, 5);
  await tab.getByRole("button", { name: "Pin current order" }).click();
  await tab.getByText("This order is pinned").waitFor();
  await top();
  await tab.waitForTimeout(200);
  assert.deepEqual((await names(tab)).slice(0, 5), sorted);
  await tab.reload();
  await tab.getByLabel("Group by").selectOption("none");
  assert.deepEqual((await names(tab)).slice(0, 5), sorted);
  await tab.getByRole("button", { name: "Unpin" }).click();
  await tab.waitForFunction((name) => document.querySelector('[data-key^="p:"][aria-rowindex="2"]')?.dataset.key.startsWith(`p:${name}`), before[0]);
  tab.fine();
});

test("leftovers are paired by dragging, by hand and by suggestion, taken apart, and undone", async () => {
  const own = await compare(server, left.reference, left.candidate, { settings: { rules: ["exact"] } });
  const tab = await page(context, server, `#/s/${own}`);
  await tab.getByTestId("chip-leftover").click();
  const row = (name) => tab.locator(`[data-key^="l:"][data-key$=":${name}"]`);
  await row("alpha").waitFor();
  assert.equal(await tab.locator("img").count(), 0, "a name is text");
  await shots(tab, "leftovers");
  await row("alpha").dragTo(row("omega"));
  await tab.getByText("Paired alpha with omega").waitFor();
  await tab.getByTestId("chip-leftover").click();
  const paired = tab.locator('[data-key="p:alpha = omega"]');
  await tab.getByRole("button", { name: "Expand all groups" }).click();
  await paired.click();
  await tab.getByRole("button", { name: "Unpair" }).click();
  await tab.getByText("alpha is no longer paired").waitFor();
  await paired.waitFor({ state: "detached" });
  await tab.keyboard.press("u");
  await paired.waitFor();
  await tab.keyboard.press("p");
  const dialog = tab.getByTestId("pair-dialog");
  await dialog.getByRole("radio").first().check();
  await dialog.getByRole("radiogroup", { name: "Tensor of the candidate" }).getByRole("radio").first().check();
  await dialog.getByRole("button", { name: "These are one tensor" }).click();
  await dialog.waitFor({ state: "detached" });
  await tab.getByText("Paired <img").waitFor();
  tab.fine();
});

test("the map draws a line per pair with its rule, pairs two leftovers and takes a pair apart", async () => {
  const own = await compare(server, left.reference, left.candidate, { settings: { rules: ["exact"] } });
  const tab = await page(context, server, `#/s/${own}/map`);
  await tab.getByText("exact").first().waitFor();
  await accessible(tab, "map");
  await shots(tab, "map");
  await tab.getByTestId("map-reference-alpha").dragTo(tab.getByTestId("map-candidate-omega"));
  await tab.getByText("manual").waitFor();
  await tab.getByTestId("map-reference-enc.0.weight").click();
  await tab.getByRole("button", { name: "Unpair" }).click();
  await tab.getByText("enc.0.weight is no longer paired").waitFor();
  await tab.getByTestId("map-reference-enc.0.weight").click();
  await tab.getByTestId("map-candidate-enc.0.weight").click();
  await tab.getByText("Paired enc.0.weight with enc.0.weight").waitFor();
  await tab.getByLabel("only leftovers").check();
  await tab.getByRole("button", { name: "Undo" }).first().click();
  tab.fine();
});

test("strategies are chosen and ordered, a regex is previewed while typed, the threshold is set, files are saved and loaded", async () => {
  const own = await compare(server, left.reference, left.candidate, { settings: { rules: ["exact"] } });
  const tab = await page(context, server, `#/s/${own}`);
  await tab.getByTestId("menu-pairing").click();
  await tab.getByRole("menuitem", { name: /Strategies/ }).click();
  const dialog = tab.getByTestId("strategies");
  await dialog.getByRole("checkbox", { name: "Use fuzzy" }).check();
  await dialog.getByRole("button", { name: "Move fuzzy up" }).click();
  await dialog.getByLabel("Fuzzy threshold, number").fill("0.5");
  await dialog.getByLabel("Regex for reference names").fill("enc\\.(?<layer>");
  await dialog.getByTestId("preview").locator(".problem").waitFor();
  await dialog.getByLabel("Regex for reference names").fill("enc\\.(?<layer>\\d+)\\.weight");
  await dialog.getByText("2 pairs by this regex").waitFor();
  await accessible(tab, "strategies");
  await shots(tab, "strategies");
  await dialog.getByRole("button", { name: "Pair and compare anew" }).click();
  await dialog.waitFor({ state: "detached" });
  await tab.getByText("Settings changed").waitFor();
  const settings = await (await fetch(`${server.url}/api/v1/sessions/${own}/settings`)).json();
  assert.equal(settings.fuzzy_threshold, 0.5);
  assert.ok(settings.rules.indexOf("pattern") >= 0 && settings.rules.includes("fuzzy"));
  await tab.getByTestId("menu-pairing").click();
  const [download] = await Promise.all([tab.waitForEvent("download"), tab.getByRole("menuitem", { name: /Save pairing as file/ }).click()]);
  const saved = join(folder, "pairs.json");
  await download.saveAs(saved);
  await tab.getByTestId("menu-pairing").click();
  await tab.getByRole("menuitem", { name: /Load pairing/ }).click();
  const load = tab.getByTestId("load-dialog");
  await load.getByLabel("File").setInputFiles(saved);
  await load.getByRole("button", { name: "Load" }).click();
  await tab.getByText("Pairing loaded").waitFor();
  tab.fine(["status of 4"]);
});

test("the layout of a pair is overridden and given back", async () => {
  const tab = await page(context, server, `#/s/${session}`);
  await tab.getByTestId("first").waitFor();
  await tab.getByRole("textbox", { name: "Filter" }).fill("0_query_final");
  await rowsOf(tab).first().click();
  await tab.getByRole("button", { name: "Layout…" }).click();
  const dialog = tab.getByTestId("layout-dialog");
  await dialog.getByRole("textbox").fill("permute(0,1)");
  await dialog.getByRole("button", { name: "Use these steps" }).click();
  await tab.getByText(/permute/).nth(1).waitFor();
  await dialog.getByRole("textbox").fill("permute(0,1,2,3)");
  await dialog.getByRole("button", { name: "Use these steps" }).click();
  await tab.getByText(/Layout of 0_query_final changed/).waitFor();
  await tab.getByRole("button", { name: "Undo", exact: true }).first().click();
  tab.fine(["status of 4"]);
});

test("ten thousand pairs are a hundred rows at most, and the last one is a key away", async () => {
  const [a, b] = [join(folder, "many_a.safetensors"), join(folder, "many_b.safetensors")];
  many(a, b);
  const large = await compare(server, a, b);
  const tab = await page(context, server, `#/s/${large}`);
  await tab.getByTestId("first").waitFor();
  await tab.getByLabel("Group by").selectOption("none");
  const elements = () => tab.getByRole("row").count();
  assert.ok((await elements()) <= 100, `${await elements()} rows`);
  assert.equal(await tab.getByTestId("pairs").getAttribute("aria-rowcount"), "10001");
  await tab.getByTestId("pairs").focus();
  await tab.keyboard.press("End");
  await tab.locator('[data-key^="p:model.layers.499.block.part_19"]').waitFor();
  assert.ok((await elements()) <= 100);
  await tab.getByRole("textbox", { name: "Filter" }).fill("layers.123.");
  await tab.getByText("20 of 10").waitFor();
  await shots(tab, "ten-thousand");
  tab.fine();
});

test("a running comparison shows progress and what is left; one that waits is cancelled and started again", async () => {
  const [a, b] = [join(folder, "large_a.safetensors"), join(folder, "large_b.safetensors")];
  sparse(a, 2 ** 28);
  sparse(b, 2 ** 28);
  const busy = await serve(["--comparisons", "1"], { roots: [folder] });
  // Enough of them that the one below usually waits; a fast machine may be through before it is asked for.
  const open = async () => (await fetch(`${busy.url}/api/v1/open`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ reference: { path: a }, candidate: { path: b } }) })).json();
  const before = [];
  for (let nth = 0; nth < 6; nth++) before.push(await open());
  const started = before[before.length - 1];
  const tab = await page(context, busy);
  await tab.getByLabel("Reference: path").fill(left.reference);
  await tab.getByLabel("Candidate: path").fill(left.candidate);
  await tab.getByLabel("Candidate: path").press("Escape");
  await tab.getByTestId("go").click();
  const waits = tab.getByText("waiting for other comparisons to finish");
  await waits.or(tab.getByTestId("chip-leftover")).first().waitFor();
  const waited = await waits.isVisible();
  if (waited) {
    await tab.getByRole("button", { name: "Cancel" }).click();
    await tab.getByRole("heading", { name: "Not compared" }).or(tab.getByTestId("chip-leftover")).first().waitFor();
  }
  const running = await page(context, busy, `#/s/${started.session}`);
  await running.getByTestId("progress").or(running.getByRole("heading", { name: "They agree" })).first().waitFor();
  for (const { session } of before) await fetch(`${busy.url}/api/v1/sessions/${session}/comparison`, { method: "DELETE" });
  const again = tab.getByRole("button", { name: "Compare now" });
  if (await again.isVisible()) await again.click();
  await tab.getByTestId("chip-leftover").waitFor();
  tab.fine();
  running.fine();
  await busy.stop();
});

test("notes and the name are kept", async () => {
  const tab = await page(context, server, `#/s/${session}`);
  await tab.getByRole("button", { name: "Notes" }).click();
  const dialog = tab.getByTestId("notes-dialog");
  await dialog.getByLabel("Name").fill("rope theta, second look");
  await dialog.getByLabel("Notes").fill("wrong base");
  await dialog.getByRole("button", { name: "Save" }).click();
  await tab.getByText("Saved").waitFor();
  await tab.reload();
  await tab.waitForFunction(() => document.title.startsWith("rope theta"));
  tab.fine();
});

test("two tabs see the same session change", async () => {
  const own = await compare(server, left.reference, left.candidate, { settings: { rules: ["exact"] } });
  const [one, two] = [await page(context, server, `#/s/${own}`), await page(context, server, `#/s/${own}`)];
  await one.getByTestId("chip-leftover").waitFor();
  await two.getByTestId("chip-leftover").waitFor();
  await one.getByTestId("chip-leftover").click();
  await one.locator('[data-key="l:reference:alpha"]').dragTo(one.locator('[data-key="l:candidate:omega"]'));
  await two.getByRole("button", { name: "Expand all groups" }).click();
  await two.locator('[data-key="p:alpha = omega"]').waitFor();
  one.fine();
  two.fine();
});
