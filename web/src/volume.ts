// One volume in the browser: what of it is loaded, coarse first, then finer, in pieces that are uploaded one a frame.

import { Data3DTexture, LinearFilter, NearestFilter, RedFormat, UnsignedByteType } from 'three';
import { cells, type Meta, type State } from './api';

/** Bytes of a request. */
const PIECE = 4 << 20;
/** Cells along the longest side at first. */
const COARSE = 64;
/** Values a side of a block that may be passed over. */
const BLOCK = 8;

/** `budget`: cells at most; `side`: along an axis, for what draws them has a limit. */
export interface Choice { how: string; range: [number, number] | null; budget: number; side: number; step: number | undefined }

/** A level that can be drawn. */
export class Level {
  readonly texture: Data3DTexture;
  readonly blocks: Data3DTexture;
  private lows: Uint8Array;
  private highs: Uint8Array;
  private side: [number, number, number];
  missing = 0;
  /** Of all pieces. */
  meta: Meta | null = null;

  constructor(readonly size: [number, number, number], readonly factor: number) {
    this.texture = texture(new Uint8Array(size[0] * size[1] * size[2]), size, LinearFilter);
    this.side = size.map((n) => Math.ceil(n / BLOCK)) as [number, number, number];
    const count = this.side[0] * this.side[1] * this.side[2];
    this.lows = new Uint8Array(count).fill(255);
    this.highs = new Uint8Array(count);
    this.blocks = texture(new Uint8Array(count), this.side, NearestFilter);
  }

  /** Takes layers from z on; answers when the next frame may go on. */
  fill(z: number, bytes: Uint8Array, meta: Meta): void {
    const [nx, ny] = this.size, [bx, by] = this.side;
    (this.texture.image.data as Uint8Array).set(bytes, z * nx * ny);
    for (let row = 0, at = 0; at < bytes.length; row++) {
      const y = row % ny, block = ((Math.floor((z + (row - y) / ny) / BLOCK) * by) + Math.floor(y / BLOCK)) * bx;
      for (let b = block; b < block + bx; b++) {
        let low = this.lows[b], high = this.highs[b];
        for (const end = Math.min(at + BLOCK, (row + 1) * nx); at < end; at++) {
          const v = bytes[at];
          if (v < low) low = v;
          if (v > high) high = v;
        }
        this.lows[b] = low;
        this.highs[b] = high;
      }
    }
    this.missing += meta.missing;
    const { meta: before } = this;
    this.meta = before ? { ...meta, min: either(Math.min, before.min, meta.min), max: either(Math.max, before.max, meta.max), missing: this.missing } : meta;
  }

  /** Which blocks have anything to see by a transfer function. */
  mark(table: Uint8Array, missing: boolean): void {
    const seen = new Uint32Array(257), out = this.blocks.image.data as Uint8Array;
    for (let i = 0; i < 256; i++) seen[i + 1] = seen[i] + (table[4 * i + 3] > 0 ? 1 : 0);
    for (let b = 0; b < out.length; b++) {
      const low = Math.max(this.lows[b], 1) - 1, high = Math.max(this.highs[b], 1) - 1;
      out[b] = seen[high + 1] > seen[low] || (missing && this.lows[b] === 0) ? 255 : 0;
    }
    this.blocks.needsUpdate = true;
  }

  free(): void {
    this.texture.dispose();
    this.blocks.dispose();
  }
}

function either(of: (a: number, b: number) => number, a: number | null, b: number | null): number | null {
  return a === null ? b : b === null ? a : of(a, b);
}

function texture(data: Uint8Array<ArrayBuffer>, [x, y, z]: [number, number, number], filter: typeof LinearFilter | typeof NearestFilter): Data3DTexture {
  const made = new Data3DTexture(data, x, y, z);
  made.format = RedFormat;
  made.type = UnsignedByteType;
  made.minFilter = made.magFilter = filter;
  made.unpackAlignment = 1;
  made.needsUpdate = true;
  return made;
}

/** Chooses and loads levels. */
export class Volume {
  level: Level | null = null;
  /** What is loading is given up for a newer step. */
  private under_way: AbortController | null = null;
  private shown = '';
  private quick = 0;
  /** Steps are so large that of those that come quickly only some values are read. */
  private rough = false;
  fault = '';
  /** The graphics have no room for finer levels than this. */
  private floor = 1;
  /** Whether what is drawn is the newest there is, as fine as it can be. */
  isFinest = false;
  /** When the last steps were given to be drawn. */
  private drawn: number[] = [];

  constructor(readonly number: number) {}

  /** Steps drawn a second, of the last three. */
  get pace(): number {
    const now = performance.now();
    this.drawn = this.drawn.filter((then) => then > now - 3000);
    return this.drawn.length / 3;
  }

  /** The finest factor that fits. */
  finest(state: State, { budget, side }: Pick<Choice, 'budget' | 'side'>): number {
    let factor = this.floor;
    const count = (f: number) => state.shape.reduce((all, n) => all * Math.ceil(n / f), 1);
    const longest = Math.max(...state.shape);
    while (count(factor) > budget || Math.ceil(longest / factor) > side) factor *= 2;
    return factor;
  }

  /** Why it cannot be drawn as fine as it is; empty if it can. */
  limit(state: State, choice: Pick<Choice, 'budget' | 'side'>): string {
    const factor = this.finest(state, choice), longest = Math.max(...state.shape);
    if (factor === 1) return '';
    if (longest > choice.side) return `${state.name} is drawn 1:${factor}: a side of ${longest} values is more than the ${choice.side} that these graphics take (MAX_3D_TEXTURE_SIZE).`;
    if (this.floor > 1) return `${state.name} is drawn 1:${factor}: these graphics have no memory for more.`;
    return '';
  }

  coarse(state: State, finest: number): number {
    let factor = finest;
    while (Math.max(...state.shape) / factor > COARSE) factor *= 2;
    return factor;
  }

  /** Loads what is next: a new step at the level that keeps up, else finer. Answers whether there is a new level to draw. */
  async next(state: State, token: string, choice: Choice, upload: (level: Level) => Promise<boolean>): Promise<boolean> {
    const finest = this.finest(state, choice), what = JSON.stringify([token, choice.how, choice.range, choice.step, state.shape]);
    const fresh = what !== this.shown;
    this.isFinest = !fresh && this.level?.factor === finest;
    if (!fresh && this.level && (this.level.factor <= finest || !choice.range)) return false;
    if (!this.quick || this.quick < finest) this.quick = this.coarse(state, finest);
    // Without a range each piece would have its own: the coarsest level is one piece.
    const factor = !choice.range ? this.coarse(state, finest) : fresh ? this.quick : finest, began = performance.now();
    const level = await this.load(state, factor, fresh && this.rough ? { ...choice, how: 'point' } : choice, upload);
    if (!level) return false;
    this.level?.free();
    this.level = level;
    this.shown = what;
    const took = performance.now() - began;
    if (fresh) this.drawn.push(performance.now());
    // As fine as keeps up with the steps.
    if (fresh && took < 60 && this.quick > (this.rough ? 2 * finest : finest)) this.quick /= 2;
    else if (fresh && took > 220 && this.quick < this.coarse(state, finest)) this.quick *= 2;
    else if (fresh && took > 220) this.rough = true;
    return true;
  }

  cancel(): void {
    this.under_way?.abort();
  }

  private async load(state: State, factor: number, choice: Choice, upload: (level: Level) => Promise<boolean>): Promise<Level | null> {
    const size = state.shape.map((n) => Math.ceil(n / factor)) as [number, number, number];
    const layers = Math.max(BLOCK, Math.floor(PIECE / (size[0] * size[1]) / BLOCK) * BLOCK);
    const abort = (this.under_way = new AbortController()), level = new Level(size, factor);
    try {
      let step: number | undefined;
      const piece = (z: number) => {
        const box = [0, 0, z, size[0], size[1], Math.min(layers, size[2] - z)];
        const wish = { factor, how: choice.how, range: choice.range, box, signal: abort.signal };
        const asked = cells(this.number, choice.step === undefined ? wish : { ...wish, step: choice.step });
        // Whoever waits for it is told; it may also be given up.
        asked.catch(() => {});
        return asked;
      };
      let next = piece(0);
      for (let z = 0; z < size[2]; z += layers) {
        const { meta, bytes } = await next;
        // The next one is made while this one is put in its place.
        if (z + layers < size[2]) next = piece(z + layers);
        step ??= meta.step;
        // Another step has come meanwhile: it is looked at next.
        if (step !== meta.step && !state.live) {
          abort.abort();
          level.free();
          return null;
        }
        level.fill(z, bytes, meta);
      }
      if (!(await upload(level))) {
        level.free();
        this.floor = this.quick = factor * 2;
        return null;
      }
      this.fault = '';
      return level;
    } catch (error) {
      level.free();
      if (!abort.signal.aborted) this.fault = String((error as Error).message);
      return null;
    }
  }
}
