// What the screen in front offers to the keyboard and the palette.
import type { Command } from "../views/Palette.svelte";

export type DialogName = "strategies" | "pair" | "load" | "layout" | "notes";

class Actions {
  /** A dialog of the session that is open. */
  dialog = $state<DialogName | null>(null);
  /** The pair that the layout dialog is about. */
  layoutOf = $state<string | null>(null);
  focusFilter: (() => void) | null = null;
  selectPair: ((id: number) => void) | null = null;
  /** Keys of the inspector. */
  keys: Record<string, () => void> = {};
  /** Commands of the screen in front. */
  commands = $state.raw<Command[]>([]);
}

export const actions = new Actions();
