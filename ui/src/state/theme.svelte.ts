// Light, dark, or what the system says; kept in this browser.
const KEY = "twinscope.theme";
type Choice = "light" | "dark" | "system";

class ThemeState {
  choice = $state<Choice>("system");
  #system = $state<"light" | "dark">("light");
  /** What is on screen. */
  shown = $derived<"light" | "dark">(this.choice === "system" ? this.#system : this.choice);

  start() {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    this.#system = dark.matches ? "dark" : "light";
    dark.addEventListener("change", () => (this.#system = dark.matches ? "dark" : "light"));
    const kept = read();
    this.choose(kept === "light" || kept === "dark" ? kept : "system");
  }

  choose(choice: Choice) {
    this.choice = choice;
    if (choice === "system") delete document.documentElement.dataset["theme"];
    else document.documentElement.dataset["theme"] = choice;
    try {
      localStorage.setItem(KEY, choice);
    } catch {
      // A browser that keeps nothing still shows the theme until the page is closed.
    }
  }

  toggle() {
    this.choose(this.shown === "dark" ? "light" : "dark");
  }
}

function read(): string | null {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

export const theme = new ThemeState();
