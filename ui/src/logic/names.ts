// Names of tensors: where they belong, and how a long one is shown. Pure: no DOM, no fetch.

/** The longest prefix that ends at a separator and that all names share; nothing when it would leave a name empty. */
export function sharedPrefix(names: readonly string[]): string {
  const [first] = names;
  if (first === undefined || names.length < 2) return "";
  let length = first.length;
  for (const name of names) {
    let at = 0;
    while (at < length && at < name.length && name[at] === first[at]) at += 1;
    length = at;
    if (length === 0) return "";
  }
  const cut = Math.max(...[".", "/", "_", ":"].map((separator) => first.lastIndexOf(separator, length - 1))) + 1;
  return names.some((name) => name.length <= cut) ? "" : first.slice(0, cut);
}

/** Letters that cannot be seen, or that turn those around them, as what they are: a name must not look like another. */
export function visible(name: string): string {
  // eslint-disable-next-line no-control-regex
  return name.replace(/[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g, (letter) => `\\u{${letter.charCodeAt(0).toString(16)}}`);
}

/** At most `room` letters: the shared prefix goes first, then the middle, never the end. */
export function elide(name: string, room: number, prefix = ""): string {
  const letters = [...name];
  if (letters.length <= room) return name;
  const rest = prefix !== "" && name.startsWith(prefix) ? [...name.slice(prefix.length)] : letters;
  if (rest.length + 1 <= room) return `…${rest.join("")}`;
  const tail = Math.max(1, Math.ceil((room - 1) * 0.7));
  const head = Math.max(0, room - 1 - tail);
  return `${rest.slice(0, head).join("")}…${rest.slice(-tail).join("")}`;
}

/** A layer's key in the name: `0_query` is layer 0, `model.layers.7.mlp` is `model.layers.7`; null outside of layers. */
export function layerOf(name: string): string | null {
  const leading = /^(\d+)[_.\-/]/.exec(name);
  if (leading) return leading[1] ?? null;
  const inner = /^(.*?(?:^|[._/])(?:layers?|blocks?|blk|h|decoder|encoder|stages?|resblocks|transformer)[._/]?(\d+))(?:[._/]|$)/.exec(name);
  return inner?.[1] ?? null;
}

const COUNT = /^((?:.*\/)?)(\d+)[_\- ]+(?=.)/;

/** Whether the names all begin with a number of their own, `007_layers.0.v`: that counts tensors, not layers. */
export function areCounted(names: readonly string[]): boolean {
  const counts = new Set(names.map((name) => COUNT.exec(name)?.[0].replace(/[_\- ]+$/, "") ?? ""));
  return names.length >= 3 && counts.size === names.length && !counts.has("");
}

export function withoutCount(name: string): string {
  return name.replace(COUNT, "$1");
}

/** What a person calls that layer. */
export function layerLabel(key: string): string {
  return /^\d+$/.test(key) ? `layer ${key}` : key;
}

/** The name with its numbers as `*`: the pattern that it shares with its sisters in other layers. */
export function patternOf(name: string): string {
  return name.replace(/\d+/g, "*");
}

/** The file or folder part of the name, before its last separator. */
export function fileOf(name: string): string {
  const slash = name.lastIndexOf("/");
  if (slash > 0) return name.slice(0, slash);
  const dot = name.lastIndexOf(".");
  return dot > 0 ? name.slice(0, dot) : name;
}

const collator = new Intl.Collator("en", { numeric: true, sensitivity: "variant" });

/** Natural order: `layer 2` before `layer 10`. */
export function compareNames(a: string, b: string): number {
  return collator.compare(a, b);
}
