// What went wrong, as the server says it (RFC 9457) or as the network fails.
export class Problem extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly code: string,
    readonly hint: string | null,
  ) {
    super(message);
    this.name = "Problem";
  }
}

export async function problemOf(response: Response): Promise<Problem> {
  try {
    const body: unknown = await response.json();
    if (typeof body === "object" && body !== null) {
      const { detail, title, code, hint } = body as Record<string, unknown>;
      const text = [detail, title].find((part) => typeof part === "string" && part !== "");
      return new Problem(String(text ?? response.statusText), response.status, String(code ?? "unknown"), typeof hint === "string" ? hint : null);
    }
  } catch {
    // Not a problem document: say what there is.
  }
  return new Problem(`the server answered ${response.status} ${response.statusText}`, response.status, "unknown", null);
}

export function unreachable(): Problem {
  return new Problem("the server does not answer", 0, "unreachable", "Is `twinscope serve` still running? Start it again; sessions are kept.");
}

export function aborted(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}
