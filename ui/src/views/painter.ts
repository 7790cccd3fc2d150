// Draws a field of numbers. The page knows only `Painter`; docs/page.md says why Canvas2D is the one there is and where another would go.
import { table, type Scale, type Theme } from "../logic/colour.js";
import { pixels } from "../logic/pixels.js";

export interface Field {
  values: Float32Array;
  width: number;
  height: number;
}

export interface Painter {
  /** Draws the field over the whole canvas, each number as one block. `texts`: the numbers written into their blocks. */
  paint(field: Field, scale: Scale, theme: Theme, texts: ((value: number) => string) | null): void;
}

/** Colours by a table at the size of the field, then one enlargement without smoothing. */
export class CanvasPainter implements Painter {
  readonly #canvas: HTMLCanvasElement;
  readonly #small = document.createElement("canvas");

  constructor(canvas: HTMLCanvasElement) {
    this.#canvas = canvas;
  }

  paint(field: Field, scale: Scale, theme: Theme, texts: ((value: number) => string) | null): void {
    const { width, height } = field;
    const context = this.#canvas.getContext("2d");
    const small = this.#small;
    small.width = width;
    small.height = height;
    const inner = small.getContext("2d");
    if (!context || !inner || width === 0 || height === 0) return;
    const image = inner.createImageData(width, height);
    pixels(field.values, scale, table(theme), new Uint32Array(image.data.buffer));
    inner.putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.clearRect(0, 0, this.#canvas.width, this.#canvas.height);
    context.drawImage(small, 0, 0, this.#canvas.width, this.#canvas.height);
    if (texts) this.#write(context, field, image.data, texts);
  }

  #write(context: CanvasRenderingContext2D, { values, width, height }: Field, colours: Uint8ClampedArray, texts: (value: number) => string) {
    const [cellWidth, cellHeight] = [this.#canvas.width / width, this.#canvas.height / height];
    const size = Math.min(cellHeight * 0.42, cellWidth / 5.2);
    if (size < 8) return;
    context.font = `${Math.min(size, 26)}px "JetBrains Mono Variable", monospace`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    values.forEach((value, at) => {
      const [r, g, b] = [colours[4 * at] ?? 0, colours[4 * at + 1] ?? 0, colours[4 * at + 2] ?? 0];
      context.fillStyle = 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#111" : "#fff";
      context.fillText(texts(value), ((at % width) + 0.5) * cellWidth, (Math.floor(at / width) + 0.5) * cellHeight);
    });
  }
}
