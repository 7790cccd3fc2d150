// The types of the API, written from the Rust types (`make ui` refreshes them, `make ui-check` fails when they are stale).
import type { components } from "../generated/api.js";

export type Schemas = components["schemas"];
