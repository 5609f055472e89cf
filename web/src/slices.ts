// Three slices through a volume, each in its own small picture, with a slider for where.

import { cells, type State } from './api';
import { colours } from './colours';

const AXES = ['x', 'y', 'z'];
/** Cells along a side of a slice at most. */
const SIDE = 256;

export class Slices {
  private canvases: HTMLCanvasElement[] = [];
  private places = [0.5, 0.5, 0.5];
  private busy = false;
  private again: (() => void) | null = null;

  constructor(parent: HTMLElement, private moved: () => void) {
    AXES.forEach((axis, n) => {
      const part = document.createElement('label'), canvas = document.createElement('canvas'), slider = document.createElement('input');
      Object.assign(slider, { type: 'range', min: '0', max: '1', step: '0.002', value: '0.5' });
      slider.addEventListener('input', () => { this.places[n] = Number(slider.value); this.moved(); });
      part.append(canvas, `${axis} `, slider);
      parent.append(part);
      this.canvases.push(canvas);
    });
  }

  /** The three pictures, for one of all. */
  get pictures(): HTMLCanvasElement[] {
    return this.canvases;
  }

  /** Draws them; while that is under way, the last call of those that come is kept for afterwards. */
  async show(volume: number, state: State, step: number | undefined, range: [number, number] | null, map: string): Promise<void> {
    if (this.busy) {
      this.again = () => void this.show(volume, state, step, range, map);
      return;
    }
    this.busy = true;
    for (let axis = 0; axis < 3; axis++) {
      // As fine as the two sides that are seen need it: the third may be a thousand times as long.
      const seen = state.shape.filter((_, n) => n !== axis);
      const factor = Math.max(1, Math.ceil(Math.max(...seen) / SIDE));
      const all = state.shape.map((n) => Math.ceil(n / factor));
      const first = [0, 0, 0], size = [...all];
      first[axis] = Math.min(all[axis] - 1, Math.floor(this.places[axis] * all[axis]));
      size[axis] = 1;
      const wish = { factor, how: 'point', range, box: [...first, ...size] };
      try {
        const { bytes } = await cells(volume, step === undefined ? wish : { ...wish, step });
        const [w, h] = size.filter((_, n) => n !== axis);
        paint(this.canvases[axis], bytes, w, h, colours(map));
      } catch {
        // The volume says what is the matter.
      }
    }
    this.busy = false;
    const { again } = this;
    this.again = null;
    again?.();
  }
}

function paint(canvas: HTMLCanvasElement, bytes: Uint8Array, w: number, h: number, table: Uint8Array): void {
  canvas.width = w;
  canvas.height = h;
  const image = new ImageData(w, h);
  for (let i = 0; i < bytes.length; i++) {
    // The second side goes upwards.
    const at = 4 * ((h - 1 - Math.floor(i / w)) * w + (i % w)), v = bytes[i];
    if (v === 0) image.data.set([191, 26, 92, 255], at);
    else {
      const c = 3 * Math.round(((v - 1) * 255) / 254);
      image.data.set([table[c], table[c + 1], table[c + 2], 255], at);
    }
  }
  canvas.getContext('2d', { willReadFrequently: true })!.putImageData(image, 0, 0);
}
