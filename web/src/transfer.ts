// The transfer function: colours by a map, opacity by a curve of points that are dragged.

import { colours } from './colours';

const GRAB = 12;

export class Transfer {
  points: [number, number][] = [[0, 0], [0.12, 0], [0.4, 0.12], [0.75, 0.5], [1, 0.95]];
  map = 'inferno';
  /** Powers of ten. */
  density = 0;
  private held = -1;

  constructor(private canvas: HTMLCanvasElement, private changed: () => void) {
    canvas.addEventListener('pointerdown', (event) => this.grab(event));
    canvas.addEventListener('pointermove', (event) => this.drag(event));
    canvas.addEventListener('pointerup', () => { this.held = -1; });
    canvas.addEventListener('dblclick', (event) => this.remove(event));
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  opacity(value: number): number {
    const after = this.points.findIndex(([at]) => at >= value);
    if (after <= 0) return this.points[Math.max(after, 0)][1];
    const [a, b] = [this.points[after - 1], this.points[after]];
    return a[1] + ((b[1] - a[1]) * (value - a[0])) / Math.max(b[0] - a[0], 1e-6);
  }

  /** 256 entries: colour, and opacity. */
  table(): Uint8Array<ArrayBuffer> {
    const rgb = colours(this.map), table = new Uint8Array(1024);
    for (let i = 0; i < 256; i++) {
      table.set(rgb.subarray(3 * i, 3 * i + 3), 4 * i);
      table[4 * i + 3] = Math.round(255 * this.opacity(i / 255));
    }
    return table;
  }

  private place(event: MouseEvent): [number, number] {
    const box = this.canvas.getBoundingClientRect();
    const clamp = (v: number) => Math.min(1, Math.max(0, v));
    return [clamp((event.clientX - box.left) / box.width), clamp(1 - (event.clientY - box.top) / box.height)];
  }

  private near([x, y]: [number, number]): number {
    const box = this.canvas.getBoundingClientRect();
    return this.points.findIndex(([px, py]) => Math.hypot((px - x) * box.width, (py - y) * box.height) < GRAB);
  }

  private grab(event: PointerEvent): void {
    const at = this.place(event);
    this.held = this.near(at);
    if (this.held < 0 && this.points.length < 24) {
      this.held = this.points.findIndex(([x]) => x > at[0]);
      if (this.held < 1) this.held = this.points.length - 1;
      this.points.splice(this.held, 0, at);
    }
    this.canvas.setPointerCapture(event.pointerId);
    this.drag(event);
  }

  private drag(event: PointerEvent): void {
    if (this.held < 0) return;
    const [x, y] = this.place(event), last = this.points.length - 1;
    const left = this.held === 0 ? 0 : this.points[this.held - 1][0], right = this.held === last ? 1 : this.points[this.held + 1][0];
    // The ends keep their places.
    const at = this.held === 0 ? 0 : this.held === last ? 1 : Math.min(right, Math.max(left, x));
    this.points[this.held] = [at, y];
    this.draw();
    this.changed();
  }

  private remove(event: MouseEvent): void {
    const found = this.near(this.place(event));
    if (found > 0 && found < this.points.length - 1) this.points.splice(found, 1);
    this.draw();
    this.changed();
  }

  draw(): void {
    const { canvas } = this, w = (canvas.width = canvas.clientWidth * devicePixelRatio), h = (canvas.height = canvas.clientHeight * devicePixelRatio);
    const g = canvas.getContext('2d')!, table = this.table();
    for (let x = 0; x < w; x++) {
      const i = Math.floor((x / w) * 256) * 4, top = h * (1 - table[i + 3] / 255);
      const rgb = `${table[i]},${table[i + 1]},${table[i + 2]}`;
      g.fillStyle = `rgba(${rgb},0.28)`;
      g.fillRect(x, 0, 1, h);
      g.fillStyle = `rgb(${rgb})`;
      g.fillRect(x, top, 1, h - top);
    }
    g.strokeStyle = '#fff';
    g.lineWidth = 1.5 * devicePixelRatio;
    g.beginPath();
    this.points.forEach(([x, y]) => g.lineTo(x * w, (1 - y) * h));
    g.stroke();
    g.fillStyle = '#fff';
    for (const [x, y] of this.points) {
      g.beginPath();
      g.arc(x * w, (1 - y) * h, 4 * devicePixelRatio, 0, 7);
      g.fill();
    }
  }
}
