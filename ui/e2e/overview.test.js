// The overview: the headline, the curve, groups, sorting, filtering, order, pairing by hand.
import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brightness, closeBrowser, closeTabs, compare, eventually, open, page, pixels, place, scratch, serve, settled, shots, TESTDATA } from "./harness.js";
import { endless, many, numbers, safetensors } from "./data.js";

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
afterEach(closeTabs);
after(async () => {
  await server.stop();
  await closeBrowser();
  rmSync(folder, { recursive: true, force: true });
});

const rowsOf = (tab) => tab.getByTestId("pairs").locator('[role="row"][data-key^="p:"]');
const names = (tab) => rowsOf(tab).evaluateAll((rows) => rows.toSorted((a, b) => Number(a.getAttribute("aria-rowindex")) - Number(b.getAttribute("aria-rowindex"))).map((row) => row.dataset.key.slice(2).split(" = ")[0]));

test("the headline says where they part and why; groups are closed but the one of the first divergence", async () => {
  const tab = await page(context, server, `#/s/${session}`);
  await tab.getByTestId("first").waitFor();
  const first = (await tab.getByTestId("first").getAttribute("title")) ?? "";
  await eventually(() => names(tab), (shown) => shown.includes(first), `${first} is not among`);
  await eventually(() => tab.locator('[role="row"][aria-expanded="true"]').count(), 1);
  await shots(tab, "overview");
  await tab.getByRole("button", { name: "Expand all groups" }).click();
  await eventually(() => names(tab), (shown) => shown.length > 10);
  await tab.getByTestId("pairs").evaluate((list) => list.scrollTo(0, 400));
  for (const heading of ["verdict", "max |Δ|"]) assert.ok(await tab.getByRole("columnheader", { name: heading }).isVisible(), "the heading stays");
  for (const name of ["reference.pth", "rope_theta.over_bf16.pth"]) assert.ok(await tab.getByRole("banner").getByText(name).first().isVisible(), `${name} stays in sight`);
  await tab.getByRole("button", { name: "Collapse all groups" }).click();
  await eventually(() => names(tab), []);
  tab.fine();
});

test("dark is dark", async () => {
  const dark = await open({ theme: "dark" });
  const tab = await page(dark, server, `#/s/${session}`);
  await tab.getByTestId("first").waitFor();
  await settled(tab);
  // What is seen, not what was asked for: a stylesheet that a minifier broke says dark and shows white.
  const night = brightness(await pixels(tab));
  assert.ok(night.middle < 50 && night.brightest > 170, `dark is ${JSON.stringify(night)}`);
  await tab.getByTestId("theme").click();
  await tab.mouse.move(0, 0);
  await settled(tab);
  const day = brightness(await pixels(tab));
  assert.ok(day.middle > 225 && day.darkest < 110, `light is ${JSON.stringify(day)}`);
  await tab.getByTestId("first").click();
  await tab.getByTestId("cells-reference").waitFor();
  await tab.getByTestId("theme").click();
  await settled(tab);
  const inside = brightness(await pixels(tab));
  assert.ok(inside.middle < 70, `an inspector in the dark is ${JSON.stringify(inside)}`);
  tab.fine();
  await tab.close();
  await dark.close();
});

test("the curve is navigation: click, arrows and Enter", async () => {
  const tab = await page(context, server, `#/s/${session}`);
  const curve = tab.getByTestId("curve");
  const box = await place(curve);
  await tab.mouse.move(box.x + box.width * 0.7, box.y + 60);
  await tab.mouse.click(box.x + box.width * 0.7, box.y + 60);
  const now = async () => Number(await curve.getAttribute("aria-valuenow"));
  const before = await eventually(now, (value) => value > 20);
  await curve.focus();
  await curve.press("ArrowRight");
  await eventually(now, before + 1);
  await curve.press("Enter");
  await tab.waitForURL(/\/pair\//);
  tab.fine();
});

test("counts are filters, and grouping, sorting and filtering combine and keep the selection", async () => {
  const tab = await page(context, server, `#/s/${session}`);
  await tab.getByTestId("chip-diverged").click();
  const foot = tab.getByText(/\d+ of 52 pairs/);
  await foot.waitFor();
  const bad = await foot.innerText();
  assert.notEqual(bad, "0 of 52 pairs");
  await tab.getByLabel("Group by").selectOption("none");
  await tab.getByLabel("Sort by").selectOption("largest");
  await eventually(() => foot.innerText(), bad);
  await rowsOf(tab).first().click();
  const peek = await eventually(() => tab.getByTestId("peek").innerText(), (text) => text.includes("Look inside"));
  for (const grouping of ["file", "pattern", "similarity", "verdict", "layer", "none"]) {
    await tab.getByLabel("Group by").selectOption(grouping);
    await eventually(() => tab.getByTestId("peek").innerText(), peek);
  }
  for (const sorting of ["name", "best", "size", "largest", "execution"]) {
    await tab.getByLabel("Sort by").selectOption(sorting);
    await eventually(() => foot.innerText(), bad);
  }
  assert.equal(await tab.getByTestId("peek").innerText(), peek);
  await tab.getByTestId("chip-diverged").click();
  const box = tab.getByRole("textbox", { name: "Filter" });
  for (const [text, some] of [["query", /query/], ["/^0_/", /^0_/], ["shape:[2, 11, 48]", /./], ["dtype:bf16", /./], ["rel>1e-1", /./], ["-query", /^(?!.*query)/]]) {
    await box.fill(text);
    await eventually(() => names(tab), (found) => found.length > 0 && found.every((name) => some.test(name)), text);
  }
  for (const verdict of ["identical", "rounding", "harmless", "diverged", "incomparable", "leftover"]) {
    await box.fill(`verdict:${verdict}`);
    const only = (words) => words.every((word) => word.includes(verdict === "leftover" ? "only in" : verdict));
    await eventually(() => tab.locator('[data-testid=pairs] [role=row][data-key^="p:"], [data-testid=pairs] [role=row][data-key^="l:"]').evaluateAll((rows) => rows.map((row) => row.innerText)), only, verdict);
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
  await settled(tab);
  const before = await eventually(() => names(tab), (found) => found.length > 6);
  const top = (count) => async () => (await names(tab)).slice(0, count);
  const at = (name) => tab.locator(`[data-key^="p:${name} "]`);
  const [from, to] = [await place(at(before[0]).locator(".grip")), await place(at(before[3]))];
  await tab.mouse.move(from.x + 8, from.y + 10);
  await tab.mouse.down();
  await tab.mouse.move(to.x + 8, to.y + 10, { steps: 6 });
  await tab.mouse.move(to.x + 8, to.y + 28, { steps: 3 });
  await tab.mouse.up();
  await tab.getByText(/moved to position 4 of/).waitFor();
  await eventually(top(4), [before[1], before[2], before[3], before[0]]);
  await tab.getByRole("button", { name: "Undo", exact: true }).first().click();
  await eventually(top(4), before.slice(0, 4));
  await tab.getByRole("button", { name: "Redo" }).click();
  await eventually(top(4), [before[1], before[2], before[3], before[0]]);
  await at(before[0]).click();
  await tab.getByTestId("pairs").focus();
  await tab.keyboard.press("Alt+ArrowUp");
  await tab.getByText(/moved to position 3 of/).waitFor();
  await tab.getByLabel("Sort by").selectOption("name");
  await tab.getByText(/pin this order to move rows/).first().waitFor();
  const byName = await (await fetch(`${server.url}/api/v1/sessions/${own}/pairs`)).json();
  const sorted = byName.pairs.map((pair) => pair.name).sort((a, b) => a.localeCompare(b, "en", { numeric: true })).slice(0, 5);
  assert.notDeepEqual(sorted, before.slice(0, 5), "the names are no order of their own");
  await eventually(top(5), sorted);
  await tab.getByRole("button", { name: "Pin current order" }).click();
  await tab.getByText("This order is pinned").waitFor();
  await eventually(top(5), sorted);
  await tab.reload();
  await tab.getByLabel("Group by").selectOption("none");
  await eventually(top(5), sorted);
  await tab.getByRole("button", { name: "Unpin" }).click();
  await eventually(top(5), before.slice(0, 5));
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
  await shots(tab, "pair-dialog");
  await dialog.getByRole("radio").first().check();
  await dialog.getByRole("radiogroup", { name: "Tensor of the candidate" }).getByRole("radio").first().check();
  await dialog.getByRole("button", { name: "These are one tensor" }).click();
  await dialog.waitFor({ state: "detached" });
  await tab.getByText("Paired <img").waitFor();
  tab.fine();
});

test("suggestions are accepted one by one and all at once, in the list and on the map, and undone", async () => {
  const values = (seed) => ({ shape: [4, 4], values: numbers(16, seed) });
  const side = (end) => Object.fromEntries([["same", values(9)], ...[0, 1, 2, 3].map((nth) => [`enc.${nth}.attn.query.${end}`, values(nth)])]);
  safetensors(join(folder, "like_a.safetensors"), side("weight"));
  safetensors(join(folder, "like_b.safetensors"), side("wt"));
  const own = await compare(server, join(folder, "like_a.safetensors"), join(folder, "like_b.safetensors"), { settings: { rules: ["exact"] } });
  const tab = await page(context, server, `#/s/${own}`);
  const count = tab.getByTestId("chip-leftover").locator("strong");
  await eventually(() => count.innerText(), "8");
  await tab.getByTestId("chip-leftover").click();
  const row = (nth) => tab.locator(`[data-key="l:reference:enc.${nth}.attn.query.weight"]`);
  await row(0).getByRole("button", { name: /pair them/ }).click();
  await tab.getByText("Paired enc.0.attn.query.weight with enc.0.attn.query.wt").waitFor();
  await eventually(() => count.innerText(), "6");
  await row(1).click();
  await tab.getByRole("button", { name: "Accept the suggestion" }).click();
  await eventually(() => count.innerText(), "4");
  await tab.getByTestId("menu-pairing").click();
  const all = tab.getByRole("menuitem", { name: /Accept all suggestions/ });
  assert.match(await all.innerText(), /2 suggestions/);
  await all.click();
  await tab.getByText("Suggestions accepted").waitFor();
  const pairs = async () => (await (await fetch(`${server.url}/api/v1/sessions/${own}/pairs`)).json()).pairs.map((pair) => pair.key);
  await eventually(async () => (await pairs()).length, 5);
  await eventually(() => tab.getByTestId("chip-leftover").locator("strong").innerText(), "0");
  await tab.getByRole("button", { name: "Undo", exact: true }).first().click();
  await eventually(() => count.innerText(), "4");
  const map = await page(context, server, `#/s/${own}/map`);
  await map.getByRole("button", { name: "Accept 2 suggestions" }).click();
  await eventually(async () => (await pairs()).length, 5);
  await map.getByRole("button", { name: "Accept 0 suggestions" }).waitFor();
  tab.fine();
  map.fine();
});

test("settings are saved as TOML and loaded, a pairing comes as JSON and as CSV, and what makes no sense is said", async () => {
  const own = await compare(server, left.reference, left.candidate, { settings: { rules: ["exact"], fuzzy_threshold: 0.61, skip: ["nothing.*"] } });
  const tab = await page(context, server, `#/s/${own}`);
  const settings = async () => (await fetch(`${server.url}/api/v1/sessions/${own}/settings`)).json();
  const take = async (item, name) => {
    await tab.getByTestId("menu-pairing").click();
    const [download] = await Promise.all([tab.waitForEvent("download"), tab.getByRole("menuitem", { name: item }).click()]);
    await download.saveAs(join(folder, name));
    return readFileSync(join(folder, name), "utf8");
  };
  const load = async (put) => {
    await tab.getByTestId("menu-pairing").click();
    await tab.getByRole("menuitem", { name: /Load pairing or settings/ }).click();
    const dialog = tab.getByTestId("load-dialog");
    await put(dialog);
    await dialog.getByRole("button", { name: "Load" }).click();
    return dialog;
  };
  const toml = await take(/Save settings as file/, "saved.toml");
  assert.match(toml, /fuzzy_threshold = 0\.61/);
  writeFileSync(join(folder, "changed.toml"), toml.replace("0.61", "0.42").replace('"exact"', '"exact", "fuzzy"'));
  await load(async (dialog) => {
    await dialog.getByLabel("File").setInputFiles(join(folder, "changed.toml"));
    await eventually(() => dialog.getByRole("radio", { name: /settings/ }).isChecked(), true);
    await shots(tab, "load-dialog");
  });
  await tab.getByText("Settings loaded").waitFor();
  const changed = await settings();
  assert.deepEqual([changed.fuzzy_threshold, changed.rules, changed.skip], [0.42, ["exact", "fuzzy"], ["nothing.*"]]);
  await tab.getByTestId("menu-pairing").click();
  await tab.getByRole("menuitem", { name: /Strategies/ }).click();
  await eventually(() => tab.getByTestId("strategies").getByLabel("Fuzzy threshold, number").inputValue(), "0.42");
  await tab.keyboard.press("Escape");
  await load((dialog) => dialog.getByLabel("File").setInputFiles(join(folder, "saved.toml")));
  await eventually(async () => (await settings()).fuzzy_threshold, 0.61);

  const dialog = await load(async (dialog) => {
    await dialog.getByRole("radio", { name: /pairing/ }).check();
    await dialog.getByLabel("Contents").fill("alpha,nobody");
  });
  await tab.getByText(/nobody/).last().waitFor();
  await dialog.getByLabel("Contents").fill("reference,candidate\nalpha,omega\n");
  await dialog.getByRole("button", { name: "Load" }).click();
  await tab.getByText("Pairing loaded").waitFor();
  await tab.getByRole("button", { name: "Expand all groups" }).click();
  await tab.locator('[data-key="p:alpha = omega"]').waitFor();
  assert.match(await take(/Save pairing as CSV/, "pairs.csv"), /^alpha,omega$/m);
  tab.fine(["status of 4"]);
});

test("the map draws a line per pair with its rule, pairs two leftovers and takes a pair apart", async () => {
  const own = await compare(server, left.reference, left.candidate, { settings: { rules: ["exact"] } });
  const tab = await page(context, server, `#/s/${own}/map`);
  await tab.getByText("exact").first().waitFor();
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
  await shots(tab, "layout-dialog");
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
  await eventually(() => tab.getByTestId("pairs").getAttribute("aria-rowcount"), "10001");
  assert.ok((await elements()) <= 100, `${await elements()} rows`);
  await tab.getByTestId("pairs").focus();
  await tab.keyboard.press("End");
  await tab.locator('[data-key^="p:model.layers.499.block.part_19"]').waitFor();
  assert.ok((await elements()) <= 100);
  await tab.getByRole("textbox", { name: "Filter" }).fill("layers.123.");
  await tab.getByText("20 of 10").waitFor();
  await shots(tab, "ten-thousand");
  tab.fine();
});

test("a running comparison streams in, shows how far it is and is cancelled; one that waits says so, is cancelled and started again", async () => {
  const [a, b] = [join(folder, "endless_a.safetensors"), join(folder, "endless_b.safetensors")];
  const small = (more) => Object.fromEntries(Array.from({ length: 6 }, (_, nth) => [`block.${nth}.weight`, { shape: [16], values: numbers(16, nth + 1).map((value) => value + (nth >= 4 ? more : 0)) }]));
  endless(a, small(0));
  endless(b, small(0.5));
  const busy = await serve(["--comparisons", "1"], { roots: [folder] });
  try {
    const running = await page(context, busy);
    await running.getByLabel("Reference: path").fill(a);
    await running.getByLabel("Candidate: path").fill(b);
    await running.getByTestId("go").click();
    // The small ones are there while the large one is still being read.
    await running.getByText("Parting at").waitFor();
    await running.getByRole("button", { name: "Expand all groups" }).click();
    await running.locator('[data-key="p:block.5.weight = block.5.weight"]').filter({ hasText: "diverged" }).waitFor();
    const progress = running.getByTestId("progress");
    await eventually(() => progress.innerText(), (text) => /6 of 7 pairs/.test(text) && /\/s/.test(text) && /left/.test(text));
    await shots(running, "running");

    const tab = await page(context, busy);
    await tab.getByLabel("Reference: path").fill(left.reference);
    await tab.getByLabel("Candidate: path").fill(left.candidate);
    await tab.getByTestId("go").click();
    const waits = tab.getByText("waiting for other comparisons to finish");
    await waits.waitFor();
    await tab.getByRole("button", { name: "Cancel" }).click();
    await tab.getByRole("heading", { name: "Not compared" }).waitFor();
    await tab.getByRole("button", { name: "Compare now" }).click();
    await waits.waitFor();

    await progress.getByRole("button", { name: "Cancel" }).click();
    await running.getByText("Cancelled before everything was compared").waitFor();
    await running.getByTestId("first").waitFor();
    await eventually(() => progress.count(), 0);
    // Its place is free now.
    await tab.getByTestId("chip-leftover").waitFor();
    await running.getByRole("button", { name: "Go on" }).click();
    await progress.waitFor();
    await progress.getByRole("button", { name: "Cancel" }).click();
    await running.getByText("Cancelled before everything was compared").waitFor();
    tab.fine();
    running.fine();
  } finally {
    await busy.stop();
  }
});

test("a result from before an edit says so when the comparison of the edit is cancelled", async () => {
  const [a, b] = [join(folder, "blocking_a.safetensors"), join(folder, "blocking_b.safetensors")];
  endless(a);
  endless(b);
  const busy = await serve(["--comparisons", "1"], { roots: [folder] });
  const call = (method, path, body) => fetch(`${busy.url}/api/v1${path}`, { method, headers: { "content-type": "application/json" }, body: JSON.stringify(body) }).then((answer) => (answer.status === 202 ? null : answer.json()));
  try {
    const id = await compare(busy, left.reference, left.candidate);
    // Takes the only place, so that the comparison of the edit waits.
    const blocking = await call("POST", "/open", { reference: { path: a }, candidate: { path: b } });
    const tab = await page(context, busy, `#/s/${id}`);
    await tab.getByTestId("chip-leftover").waitFor();
    await call("POST", `/sessions/${id}/edits`, { kind: "pair", reference: ["alpha"], candidate: ["omega"] });
    const progress = tab.getByTestId("progress");
    await progress.getByRole("button", { name: "Cancel" }).click();
    const note = tab.getByText("Cancelled before the last edit was compared: this result is older.");
    await note.waitFor();
    await tab.reload();
    await note.waitFor();
    await tab.getByRole("button", { name: "Go on" }).click();
    await progress.waitFor();
    await call("DELETE", `/sessions/${blocking.session}/comparison`);
    await eventually(() => call("GET", `/sessions/${id}`).then(({ state, revision, headline }) => ({ state, revision, pairs: headline.pairs })), { state: "done", revision: 2, pairs: 3 });
    await eventually(() => progress.count(), 0);
    assert.equal(await note.count(), 0);
    tab.fine();
  } finally {
    await busy.stop();
  }
});

test("pairs that are told while an older answer is on its way are not lost to it", async () => {
  const [a, b] = [join(folder, "told_a.safetensors"), join(folder, "told_b.safetensors")];
  const small = (more) => ({ "block.0.weight": { shape: [16], values: numbers(16).map((value) => value + more) } });
  endless(a, small(0));
  endless(b, small(0.5));
  const busy = await serve(["--comparisons", "1"], { roots: [folder] });
  try {
    const tab = await page(context, busy);
    // What the page asks for was answered before the first pairs were known, and arrives after they were told.
    await tab.route(/\/api\/v1\/sessions\/[^/]+$/, async (route) => {
      const response = await route.fetch();
      const doc = await response.json();
      if (doc.state === "running") Object.assign(doc.progress, { phase: "pairing", pairs: 0, pairs_total: 0 });
      await new Promise((done) => setTimeout(done, 1500));
      await route.fulfill({ response, json: doc });
    });
    await tab.getByLabel("Reference: path").fill(a);
    await tab.getByLabel("Candidate: path").fill(b);
    await tab.getByTestId("go").click();
    await tab.getByText("Parting at").waitFor();
    await tab.waitForTimeout(4000);
    assert.ok(await tab.getByText("Parting at").isVisible(), "and stays");
    await tab.unrouteAll({ behavior: "wait" });
    await tab.getByTestId("progress").getByRole("button", { name: "Cancel" }).click();
    await tab.getByText("Cancelled before everything was compared").waitFor();
    tab.fine();
  } finally {
    await busy.stop();
  }
});

test("notes and the name are kept", async () => {
  const tab = await page(context, server, `#/s/${session}`);
  await tab.getByRole("button", { name: "Notes" }).click();
  const dialog = tab.getByTestId("notes-dialog");
  await dialog.getByLabel("Name").fill("rope theta, second look");
  await dialog.getByLabel("Notes").fill("wrong base");
  await shots(tab, "notes-dialog");
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
