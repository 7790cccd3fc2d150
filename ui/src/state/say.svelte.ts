// Short messages at the foot of the page; screen readers hear them too.
export interface Message {
  id: number;
  text: string;
  hint: string | null;
  bad: boolean;
  action: { label: string; run: () => void } | null;
}

class Messages {
  list = $state.raw<Message[]>([]);
  #next = 0;

  say(text: string, action: Message["action"] = null) {
    this.#add({ text, hint: null, bad: false, action });
  }

  fail(error: unknown) {
    const hint = error instanceof Error && "hint" in error && typeof error.hint === "string" ? error.hint : null;
    this.#add({ text: error instanceof Error ? error.message : String(error), hint, bad: true, action: null });
  }

  drop(id: number) {
    this.list = this.list.filter((message) => message.id !== id);
  }

  #add(message: Omit<Message, "id">) {
    const id = this.#next++;
    this.list = [...this.list.slice(-3), { id, ...message }];
    setTimeout(() => this.drop(id), message.bad ? 12_000 : 5_000);
  }
}

export const messages = new Messages();
