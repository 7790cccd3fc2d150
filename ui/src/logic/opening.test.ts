import { expect, test } from "vitest";
import { kindOf, modeFor, strategyFor } from "./opening.js";

test("paths say what they are", () => {
  expect(kindOf("a/run.tar.gz")).toBe("archive");
  expect(kindOf("RUN.ZIP")).toBe("archive");
  expect(kindOf("x.safetensors")).toBe("file");
  expect(kindOf("dumps/")).toBe("folder");
  expect(kindOf("dumps", true)).toBe("folder");
});

test("the tab follows what was given", () => {
  expect(modeFor("archive", "archive", "explore")).toBe("compare");
  expect(modeFor("file", "file", "compare")).toBe("compare");
  expect(modeFor("archive", "folder", "compare")).toBe("compare");
  expect(modeFor("archive", "file", "compare")).toBe("mixed");
  expect(modeFor("file", null, "explore")).toBe("explore");
  expect(modeFor(null, null, "mixed")).toBe("mixed");
});

test("an archive against a file is matched by shape first", () => {
  expect(strategyFor("mixed", "archive", "file")).toBe("shapes");
  expect(strategyFor("compare", "archive", "archive")).toBe("auto");
});
