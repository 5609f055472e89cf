// Small plots over time: a bright line for the whole, thin ones for streams.

import type { Closed, State } from './api';

const HUES = ['#6cb6ff', '#f69d50', '#8ddb8c', '#dcbdfb'];
/** Points kept. */
const KEPT = 600;

interface Line { points: [number, number][]; colour: string; thin: boolean }

export function plot(canvas: HTMLCanvasElement, lines: Line[]): void {
  const scale = devicePixelRatio, w = (canvas.width = canvas.clientWidth * scale), h = (canvas.height = canvas.clientHeight * scale);
  const g = canvas.getContext('2d', { willReadFrequently: true })!, all = lines.flatMap((line) => line.points);
  const left = 34 * scale, bottom = h - 4 * scale, top = 6 * scale;
  const times = all.map(([t]) => t), t0 = Math.min(...times), t1 = Math.max(...times, t0 + 1);
  const peak = Math.max(...all.map(([, v]) => v), 0), most = peak > 0 ? nice(peak) : 1;
  g.font = `${10 * scale}px system-ui, sans-serif`;
  g.textAlign = 'right';
  for (const share of [0, 0.5, 1]) {
    const y = bottom - share * (bottom - top);
    g.fillStyle = '#6e7b8a';
    g.fillText(String(Number((most * share).toPrecision(3))), left - 5 * scale, y + 3 * scale);
    g.fillStyle = '#1d242d';
    g.fillRect(left, y, w - left, 1);
  }
  for (const { points, colour, thin } of lines) {
    g.strokeStyle = colour;
    g.globalAlpha = thin ? 0.25 : 1;
    g.lineWidth = (thin ? 1 : 1.6) * scale;
    g.beginPath();
    for (const [t, v] of points) g.lineTo(left + ((t - t0) / (t1 - t0)) * (w - left - 2), bottom - (v / most) * (bottom - top));
    g.stroke();
  }
  g.globalAlpha = 1;
}

function nice(peak: number): number {
  const power = 10 ** Math.floor(Math.log10(peak));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= peak) ?? peak;
}

/** Of one volume: what its streams have brought and lost, over time. */
export class Course {
  private before: { at: number; packets: Map<number, number[]> } | null = null;
  private streams = new Map<number, { loss: [number, number][]; rate: [number, number][] }>();
  private rates: [number, number][] = [];
  rateNow = 0;

  add(state: State, now: number): void {
    const at = now / 1e9, packets = new Map(state.slabs.map((slab) => [slab.stream, [slab.packets + slab.recovered, slab.lost, slab.bytes]]));
    const { before } = this;
    if (before && at - before.at < 0.4) return;
    this.before = { at, packets };
    if (!before) return;
    let sum = 0;
    for (const [stream, [came, lost, bytes]] of packets) {
      const old = before.packets.get(stream);
      if (!old || came < old[0]) continue;
      const course = this.streams.get(stream) ?? { loss: [], rate: [] };
      this.streams.set(stream, course);
      const rate = ((bytes - old[2]) * 8) / (at - before.at) / 1e9, all = came - old[0] + lost - old[1];
      sum += rate;
      push(course.rate, [at, rate]);
      if (all > 0) push(course.loss, [at, (100 * (lost - old[1])) / all]);
    }
    this.rateNow = sum;
    push(this.rates, [at, sum]);
  }

  lines(of: 'loss' | 'rate', state: State, volume: number): Line[] {
    const colour = HUES[volume % HUES.length];
    const thin = [...this.streams.values()].map((course) => ({ points: course[of], colour, thin: true }));
    const closed = state.history.map((entry, n): [number, number] => [state.steps ? n : entry.when / 1e9, lossOf(entry)]);
    // What came before the page was opened is in the history.
    const since = closed.slice(-KEPT);
    return [...thin, { points: of === 'loss' ? since : this.rates, colour, thin: false }];
  }
}

function push(list: [number, number][], point: [number, number]): void {
  list.push(point);
  if (list.length > KEPT) list.shift();
}

/** Percent of a step's packets that have not come. */
export function lossOf(entry: Closed): number {
  return entry.expected > 0 ? Math.max(0, 100 * (1 - entry.received / entry.expected)) : 0;
}
