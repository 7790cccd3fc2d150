// One pair down to its values: slices, jumps, searches, pictures, histograms, profiles, causes, and ways to take it along.
import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import { readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { closeBrowser, closeTabs, compare, decode, eventually, open, page, pixels, place, scratch, serve, setTheme, settled, shots, TESTDATA } from "./harness.js";
import { numbers, safetensors } from "./data.js";

const folder = scratch();
const FAULTS = join(TESTDATA, "faults");
let server, context, session;
before(async () => {
  server = await serve([], { roots: [folder] });
  context = await open();
  session = await compare(server, join(FAULTS, "reference.pth"), join(FAULTS, "rope_theta.over_bf16.pth"));
});
afterEach(closeTabs);
after(async () => {
  await server.stop();
  await closeBrowser();
  rmSync(folder, { recursive: true, force: true });
});

const inside = async (name, other = name) => {
  const tab = await page(context, server, `#/s/${session}/pair/${encodeURIComponent(`${name} = ${other}`)}`);
  await tab.getByTestId("cells-reference").waitFor();
  return tab;
};
const status = (tab) => tab.getByTestId("status");
/** What the line at the foot says, once it says it. */
const says = (tab, expected) => eventually(() => status(tab).innerText(), typeof expected === "string" ? expected : (text) => expected.test(text));

test("it opens on the first ten values of both sides, statistics folded away", async () => {
  const tab = await inside("0_query_final");
  for (const side of ["reference", "candidate"]) {
    const grid = tab.getByTestId(`cells-${side}`);
    assert.equal(await grid.locator("tbody tr").count(), 10);
    assert.equal(await grid.locator("tbody tr").first().locator("td").count(), 10);
  }
  assert.equal(await tab.getByTestId("statistics").getAttribute("aria-expanded"), "false");
  await tab.getByTestId("heat-difference").waitFor();
  await shots(tab, "inspector");
  await tab.getByTestId("statistics").click();
  await tab.getByText("max ULP").waitFor();
  tab.fine();
});

test("sliders, boxes and arrow keys move each dimension; any two are rows and columns; 1-D, 2-D and flattened", async () => {
  const tab = await inside("0_query_final");
  await tab.getByLabel("dim 1, index").fill("2");
  await tab.getByLabel("dim 1, index").press("Enter");
  await tab.waitForURL(/d=0,2,r,c/);
  const slider = tab.getByRole("slider", { name: "dim 0", exact: true });
  await slider.focus();
  await slider.press("ArrowRight");
  await tab.waitForURL(/d=1,2,r,c/);
  await tab.getByLabel("Role of dim 0").selectOption("rows");
  await tab.waitForURL(/d=r,2,0,c/);
  await tab.getByRole("button", { name: "swap axes" }).click();
  await tab.waitForURL(/d=c,2,0,r/);
  await tab.getByLabel("rows, start").fill("3");
  await tab.getByLabel("rows, start").press("Enter");
  await tab.getByLabel("rows, count").fill("4");
  await tab.getByLabel("rows, count").press("Enter");
  await tab.waitForURL(/r=3\.4/);
  await tab.getByLabel("rows, end").fill("6");
  await tab.getByLabel("rows, end").press("Enter");
  await tab.waitForURL(/r=3\.3/);
  await tab.getByRole("button", { name: "1-D" }).click();
  await tab.getByRole("columnheader", { name: "ULP" }).waitFor();
  await tab.getByRole("button", { name: "flattened" }).click();
  await tab.waitForURL(/d=flat/);
  await tab.getByLabel("values, start").fill("100");
  await tab.getByLabel("values, start").press("Enter");
  await tab.getByRole("rowheader", { name: "[0, 0, 8, 4]" }).waitFor();
  await shots(tab, "flattened");
  tab.fine();
});

test("the largest difference is jumped to and flashes; next and previous difference, typed index, search", async () => {
  const tab = await inside("0_query_final");
  await tab.getByTestId("max").click();
  await tab.locator("td.flash").first().waitFor();
  await tab.getByText(/Largest difference at \[/).waitFor();
  await tab.mouse.move(0, 0);
  const largest = await says(tab, /reference .*candidate .*difference .*relative .*ULP .*bits/s);
  await tab.keyboard.press("n");
  const next = await eventually(() => status(tab).innerText(), (text) => text !== largest && /difference \S/.test(text));
  await tab.keyboard.press("b");
  await says(tab, largest);
  await tab.getByRole("button", { name: "Next difference" }).click();
  await says(tab, next);
  await tab.getByRole("button", { name: "Previous difference" }).click();
  await says(tab, largest);
  await tab.getByLabel("Go to an index").fill("1, 3, 10, 11");
  await tab.getByLabel("Go to an index").press("Enter");
  await tab.waitForURL(/cell=1,3,10,11/);
  await tab.getByLabel("Go to an index").fill("9, 9");
  await tab.getByLabel("Go to an index").press("Enter");
  await tab.getByText("4 dimensions").waitFor();
  await tab.getByLabel("Search a value or a range").fill("1e-3..10");
  await tab.getByLabel("Search on").selectOption("difference");
  await tab.getByRole("button", { name: "Search" }).click();
  // The first in row-major order after the place that was gone to.
  await eventually(() => tab.url(), (url) => /cell=/.test(url) && !/cell=1,3,10,11/.test(url));
  const size = (await says(tab, /difference \S/)).match(/difference (\S+)/)[1].replace("−", "-");
  assert.ok(Number(size) >= 1e-3 && Number(size) <= 10, `a difference of ${size}`);
  // A value of each side, taken from the far end of what is shown, is found where it is.
  for (const side of ["reference", "candidate"]) {
    await tab.getByLabel("Go to an index").fill("1, 2, 5, 6");
    await tab.getByLabel("Go to an index").press("Enter");
    await tab.waitForURL(/cell=1,2,5,6/);
    const value = (await says(tab, /\[1, 2, 5, 6\].*bits/s)).match(new RegExp(`${side} (\\S+)`))[1];
    await tab.getByLabel("Go to an index").fill("0, 0, 0, 0");
    await tab.getByLabel("Go to an index").press("Enter");
    await tab.waitForURL(/cell=0,0,0,0/);
    await tab.getByLabel("Search a value or a range").fill(value);
    await tab.getByLabel("Search on").selectOption(side);
    await tab.getByRole("button", { name: "Search" }).click();
    await says(tab, new RegExp(`${side} ${value.replaceAll(".", "\\.")}\\b`));
    await tab.waitForURL(/cell=(?!0,0,0,0)/);
  }
  await tab.getByLabel("Search a value or a range").fill("12345.5");
  await tab.getByRole("button", { name: "Search" }).click();
  await tab.getByText("No value of the candidate is 12345.5").waitFor();
  await tab.getByRole("button", { name: "Next NaN or Inf" }).click();
  await tab.getByText("There is neither NaN nor infinity").waitFor();
  tab.fine();
});

test("a NaN is found and shown as one", async () => {
  const own = await compare(server, join(FAULTS, "reference.pth"), join(FAULTS, "nan_token.pth"));
  const tab = await page(context, server, `#/s/${own}`);
  await tab.getByTestId("first").click();
  await tab.getByTestId("cells-reference").waitFor();
  await tab.getByRole("button", { name: "Next NaN or Inf" }).click();
  await says(tab, /(reference|candidate) NaN/);
  await tab.getByTestId("cells-candidate").getByText("NaN", { exact: true }).first().waitFor();
  await shots(tab, "nan");
  tab.fine();
});

test("cells are walked with arrows and the pointer tells both exact values", async () => {
  const tab = await inside("0_query_final");
  const grid = tab.getByTestId("cells-reference");
  await grid.locator("td").nth(12).hover();
  await says(tab, /\[0, 0, 1, 2\]\s+reference \S+\s+candidate \S+\s+difference \S+\s+relative \S+\s+ULP \S+\s+bits [0-9a-f]+ \/ [0-9a-f]+/);
  await grid.locator("td").nth(12).click();
  await tab.waitForURL(/cell=0,0,1,2/);
  await grid.focus();
  await tab.keyboard.press("ArrowDown");
  await tab.keyboard.press("ArrowRight");
  await tab.waitForURL(/cell=0,0,2,3/);
  tab.fine();
});

test("colours: blue is negative, orange positive, stronger the larger; the border tells the difference; a legend says so; all of it can be off", async () => {
  const values = [-1, -0.25, 0, 0.25, 1, 0.5];
  safetensors(join(folder, "colour_a.safetensors"), { w: { shape: [2, 3], values } });
  safetensors(join(folder, "colour_b.safetensors"), { w: { shape: [2, 3], values: values.map((value, at) => (at === 5 ? value + 0.5 : at === 3 ? value + 0.001 : value)) } });
  const own = await compare(server, join(folder, "colour_a.safetensors"), join(folder, "colour_b.safetensors"));
  const tab = await page(context, server, `#/s/${own}/pair/${encodeURIComponent("w = w")}`);
  const cells = tab.getByTestId("cells-candidate").locator("td");
  await cells.nth(5).waitFor();
  for (const theme of ["light", "dark"]) {
    await setTheme(tab, theme);
    await settled(tab);
    const seen = [];
    for (let nth = 0; nth < 6; nth += 1) {
      // A corner of the cell, inside of its border and beside its text.
      const box = await cells.nth(nth).boundingBox();
      seen.push((await pixels(tab, { x: box.x + 8, y: box.y + 5, width: 2, height: 2 })).rgb(0, 0));
    }
    const [far, near, none, little, much] = seen;
    const blue = ([r, , b]) => b - r;
    assert.ok(blue(far) > 60 && blue(far) > blue(near) && blue(near) > 0, `negative, ${theme}: ${far} and ${near}`);
    assert.ok(Math.abs(blue(none)) < 16, `zero, ${theme}: ${none}`);
    assert.ok(blue(much) < -60 && blue(much) < blue(little) && blue(little) < 0, `positive, ${theme}: ${much} and ${little}`);
    const border = (nth) => cells.nth(nth).evaluate((cell) => getComputedStyle(cell).boxShadow);
    const [same, small, large] = [await border(0), await border(3), await border(5)];
    assert.equal(same, "none", "nothing differs");
    const channels = (text) => text.match(/rgb\((\d+), (\d+), (\d+)\)/).slice(1).map(Number);
    const [low, high] = [channels(small), channels(large)];
    assert.ok(low[1] > low[0], `a small difference is green, ${theme}: ${small}`);
    assert.ok(high[0] > high[1] && high[1] > high[2], `a large one is orange, ${theme}: ${large}`);
  }
  await tab.getByText("background: the value").waitFor();
  await tab.getByText(/border: difference, none to 0\.5/).waitFor();
  assert.match(await cells.nth(5).getAttribute("title"), /\[1, 2\]\nreference 0\.5\ncandidate 1\b.*\ndifference 0\.5\nrelative .*\nULP .*\nbits /s);
  await tab.getByLabel("colours").uncheck();
  await eventually(() => cells.nth(0).evaluate((cell) => getComputedStyle(cell).backgroundColor), "rgba(0, 0, 0, 0)");
  tab.fine();
});

test("a picture of a large tensor is pooled on the server, says so, and no outlier or NaN is lost in it", async () => {
  const [rows, cols] = [700, 900];
  const values = Array.from({ length: rows * cols }, (_, at) => Math.sin(at / 50) / 10);
  const other = values.slice();
  other[333 * cols + 777] = 9;
  other[600 * cols + 100] = NaN;
  safetensors(join(folder, "pool_a.safetensors"), { w: { shape: [rows, cols], values } });
  safetensors(join(folder, "pool_b.safetensors"), { w: { shape: [rows, cols], values: other } });
  const own = await compare(server, join(folder, "pool_a.safetensors"), join(folder, "pool_b.safetensors"));
  const tab = await page(context, server, `#/s/${own}/pair/${encodeURIComponent("w = w")}`);
  await tab.getByText(/abs-max pooling/).waitFor();
  await tab.getByText("NaN (2 px)").waitFor();
  const heat = tab.getByTestId("heat-difference");
  await eventually(() => heat.locator(".legend").innerText(), (text) => /9/.test(text) || /8\.9/.test(text));
  await tab.getByTestId("max").click();
  await tab.getByRole("button", { name: "read cells" }).click();
  await tab.getByText("every value is a cell").waitFor();
  await tab.getByRole("button", { name: "Zoom out" }).click();
  await tab.getByRole("button", { name: "Zoom in" }).click();
  tab.fine();
});

test("heatmaps: linked cursor, zoom to readable cells, pan, scales, shared range, PNG", async () => {
  const tab = await inside("0_gate");
  const heat = tab.getByTestId("heat-difference").getByRole("img");
  await heat.waitFor();
  await settled(tab);
  await heat.scrollIntoViewIfNeeded();
  const box = await place(heat);
  await tab.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  await eventually(() => tab.locator(".picture .cursor").count(), 3, "one cursor in each picture");
  await says(tab, /reference/);
  for (let step = 0; step < 12; step += 1) await tab.mouse.wheel(0, -200);
  await tab.getByText("every value is a cell").waitFor();
  await shots(tab, "zoomed");
  await tab.mouse.down();
  await tab.mouse.move(box.x + 10, box.y + 10, { steps: 4 });
  await tab.mouse.up();
  await tab.getByRole("button", { name: "whole" }).click();
  await tab.getByLabel("Colour scale").selectOption("symlog");
  await tab.getByLabel("Colour scale").selectOption("clipped");
  await tab.getByRole("button", { name: "shared range" }).click();
  await tab.getByRole("button", { name: "hold colours" }).click();
  await heat.focus();
  await tab.keyboard.press("+");
  await tab.keyboard.press("ArrowDown");
  const [download] = await Promise.all([tab.waitForEvent("download"), tab.getByRole("button", { name: "Save the difference as PNG" }).click()]);
  assert.match(download.suggestedFilename(), /difference\.png$/);
  const picture = decode(readFileSync(await download.path()));
  const colours = new Set(Array.from({ length: 200 }, (_, nth) => picture.rgb((nth * 37) % picture.width, (nth * 53) % picture.height).join()));
  assert.ok(colours.size > 3, `${colours.size} colours in the picture`);
  tab.fine();
});

test("histograms, profiles and statistics are a click away", async () => {
  const tab = await inside("0_query_final");
  await tab.getByRole("button", { name: "Histograms" }).click();
  await tab.getByText("values of both").waitFor();
  await tab.getByText("ULP, by power of two").waitFor();
  await tab.getByRole("button", { name: /Profiles/ }).click();
  await tab.getByLabel("Measure of the profiles").selectOption("max_abs");
  const bars = tab.getByRole("img", { name: "dim 2, 11 bars" });
  await bars.waitFor();
  await settled(tab);
  await bars.click();
  await tab.waitForURL(/cell=/);
  await tab.getByTestId("statistics").click();
  await tab.getByText("mean relative").waitFor();
  await tab.getByText("the worst values").waitFor();
  await bars.scrollIntoViewIfNeeded();
  await shots(tab, "profiles");
  tab.fine();
});

test("the layout is told in words, the candidate is seen as it lies, and both sides are walked independently", async () => {
  const values = numbers(2 * 3 * 4 * 5);
  const at = (b, h, t, d) => values[((b * 3 + h) * 4 + t) * 5 + d];
  const moved = [];
  for (let b = 0; b < 2; b += 1) for (let t = 0; t < 4; t += 1) for (let h = 0; h < 3; h += 1) for (let d = 0; d < 5; d += 1) moved.push(at(b, h, t, d));
  safetensors(join(folder, "heads_a.safetensors"), { q: { shape: [2, 3, 4, 5], values } });
  safetensors(join(folder, "heads_b.safetensors"), { q: { shape: [2, 4, 3, 5], values: moved } });
  const own = await compare(server, join(folder, "heads_a.safetensors"), join(folder, "heads_b.safetensors"));
  const tab = await page(context, server, `#/s/${own}/pair/${encodeURIComponent("q = q")}`);
  await tab.getByText(/swap dims 1 and 2/).first().waitFor();
  await tab.getByLabel("candidate in its original layout").check();
  await tab.getByRole("heading", { name: /candidate, original layout/ }).waitFor();
  await tab.getByLabel("candidate dim 1, index").waitFor();
  await tab.getByRole("button", { name: /dims of equal size/ }).click();
  await shots(tab, "original");
  await tab.getByLabel("candidate in its original layout").uncheck();
  await tab.getByLabel("independent indices for each side").check();
  await tab.getByLabel("candidate dim 0, index").fill("1");
  await tab.getByLabel("candidate dim 0, index").press("Enter");
  await eventually(() => tab.getByLabel("candidate dim 0, index").inputValue(), "1");
  await tab.getByRole("button", { name: "copy settings" }).click();
  await eventually(() => tab.getByLabel("candidate dim 0, index").inputValue(), "0");
  await tab.getByRole("button", { name: "both flattened" }).click();
  tab.fine();
});

test("tensors of no dimension to seven are shown", async () => {
  const shapes = [[], [6], [3, 4], [2, 3, 4], [2, 2, 3, 4], [2, 2, 2, 3, 4], [2, 2, 2, 2, 3, 4], [2, 1, 2, 2, 2, 3, 4], [0, 4]];
  const tensors = (more) => Object.fromEntries(shapes.map((shape, nth) => [`t${nth}`, { shape, values: numbers(shape.reduce((a, b) => a * b, 1), nth + 1).map((value) => value + more) }]));
  safetensors(join(folder, "ranks_a.safetensors"), tensors(0));
  safetensors(join(folder, "ranks_b.safetensors"), tensors(0.25));
  const own = await compare(server, join(folder, "ranks_a.safetensors"), join(folder, "ranks_b.safetensors"));
  for (const [nth, shape] of shapes.entries()) {
    const tab = await page(context, server, `#/s/${own}/pair/${encodeURIComponent(`t${nth} = t${nth}`)}`);
    if (shape.includes(0)) await tab.getByText("holds nothing").waitFor();
    else {
      await tab.getByTestId("cells-reference").locator("td").first().waitFor();
      await tab.getByTestId("max").click();
      await says(tab, /difference \S/);
    }
    tab.fine();
    await tab.close();
  }
});

test("a cause is applied and the difference vanishes", async () => {
  const values = numbers(64 * 32);
  safetensors(join(folder, "cause_a.safetensors"), { w: { shape: [64, 32], values } });
  safetensors(join(folder, "cause_b.safetensors"), { w: { shape: [64, 32], values: values.map((value) => value * 1.25) } });
  const own = await compare(server, join(folder, "cause_a.safetensors"), join(folder, "cause_b.safetensors"));
  const tab = await page(context, server, `#/s/${own}/pair/${encodeURIComponent("w = w")}`);
  await tab.getByTestId("apply-0").waitFor();
  await tab.getByText("evidence").first().click();
  await shots(tab, "cause");
  await tab.getByTestId("apply-0").click();
  await tab.getByText("reference, cause applied").first().waitFor();
  await tab.waitForFunction(() => {
    const [a, b] = ["reference", "candidate"].map((side) => [...document.querySelectorAll(`[data-testid=cells-${side}] td`)].map((cell) => cell.textContent));
    return a.length > 0 && a.join() === b.join();
  });
  await shots(tab, "cause-applied");
  tab.fine();
});

test("the link opens on the very value, and code and files are taken along", async () => {
  const tab = await inside("0_query_final");
  await tab.getByTestId("max").click();
  await tab.waitForURL(/cell=/);
  await tab.getByRole("button", { name: "Copy link" }).click();
  await tab.getByText("Link copied").waitFor();
  const link = await tab.evaluate(() => navigator.clipboard.readText());
  const before = await says(tab, /difference \S/);
  const fresh = await page(context, server, link.slice(link.indexOf("#")));
  await says(fresh, before);
  // The same tab follows a link to another value of the same tensor, and keeps its place when the session is loaded anew.
  await fresh.evaluate((hash) => (location.hash = hash), link.slice(link.indexOf("#")).replace(/cell=[\d,]+/, "cell=1,1,1,1"));
  await says(fresh, /\[1, 1, 1, 1\]/);
  await fresh.keyboard.press("m");
  await says(fresh, before);
  const renamed = await fetch(`${server.url}/api/v1/sessions/${session}`, { method: "PATCH", headers: { "content-type": "application/json" }, body: JSON.stringify({ name: "linked" }) });
  assert.equal(renamed.status, 200);
  await eventually(() => fresh.title(), (title) => title.startsWith("linked"));
  await settled(fresh);
  assert.equal(await status(fresh).innerText(), before);
  for (const [item, part] of [["NumPy", "np.testing.assert_allclose"], ["PyTorch", "torch.testing.assert_close"], ["Command line", "twinscope show"]]) {
    await tab.getByTestId("menu-copy").click();
    await tab.getByRole("menuitem", { name: item }).click();
    await tab.getByText(/copied/).last().waitFor();
    await tab.waitForFunction(async (part) => (await navigator.clipboard.readText()).includes(part), part);
  }
  for (const kind of ["npy", "csv"]) {
    await tab.getByTestId("menu-save").click();
    const [download] = await Promise.all([tab.waitForEvent("download"), tab.getByRole("menuitem", { name: `difference as .${kind}` }).click()]);
    const bytes = readFileSync(await download.path());
    if (kind === "npy") assert.equal(bytes.subarray(1, 6).toString(), "NUMPY");
    else assert.ok(bytes.length > 20);
  }
  tab.fine();
  fresh.fine();
});

test("it is usable on small and wide screens and with long names: nothing hangs over the side", async () => {
  const long = (nth) => `model.language_model.transformer.encoder.layers.${nth}.self_attention_with_rotary_embedding.query_key_value_projection.lora_adapter.default.weight`;
  const values = (seed, more) => ({ shape: [16, 4096], values: numbers(16 * 4096, seed).map((value) => value + more) });
  safetensors(join(folder, "a_run_with_a_name_that_somebody_thought_about_for_too_long.safetensors"), Object.fromEntries([0, 1, 2].map((nth) => [long(nth), values(nth, 0)])));
  safetensors(join(folder, "the_other_run_with_a_name_that_is_no_shorter_than_the_first.safetensors"), Object.fromEntries([0, 1, 2].map((nth) => [long(nth).replace("weight", "w"), values(nth, nth / 10)])));
  const own = await compare(server, join(folder, "a_run_with_a_name_that_somebody_thought_about_for_too_long.safetensors"), join(folder, "the_other_run_with_a_name_that_is_no_shorter_than_the_first.safetensors"));
  for (const [name, width, which] of [["small", 1024, session], ["narrow", 900, session], ["wide", 1920, session], ["long", 1200, own]]) {
    const screen = await open({ width, height: width > 1500 ? 1080 : 700 });
    const tab = await page(screen, server, `#/s/${which}`);
    const fits = async (place) => assert.equal(await tab.evaluate(() => document.documentElement.scrollWidth > innerWidth), false, `${place}, ${width} wide`);
    await tab.getByTestId("first").waitFor();
    await shots(tab, `${name}-overview`);
    await fits("overview");
    await tab.getByTestId("first").click();
    await tab.getByTestId("cells-reference").waitFor();
    await shots(tab, `${name}-inspector`);
    await fits("inspector");
    await tab.evaluate((id) => (location.hash = `#/s/${id}/map`), which);
    await tab.getByTestId("map").waitFor();
    await fits("map");
    tab.fine();
    await tab.close();
    await screen.close();
  }
});
