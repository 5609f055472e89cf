// Draws volumes side by side. While anything moves, small and quickly; when it stands still, again in full detail, tile by tile, so that
// no tile holds up what the user does: the next begins when the processor of graphics has done the last (a fence says so).

import {
  BufferAttribute, BufferGeometry, DataTexture, GLSL3, LinearFilter, Matrix4, Mesh, NearestFilter, RawShaderMaterial, RGBAFormat, Scene, Vector3,
  WebGLRenderer, WebGLRenderTarget, Camera, FloatType,
} from 'three';
import type { Orbit } from './orbit';
import { COPY, RAYS, VERTEX } from './shader';
import type { Level } from './volume';

/** How long a picture while moving, and a tile, may take: milliseconds. */
const MOVING = 40, TILE = 30;
/** Quiet for so long counts as standing still. */
const STILL = 160;
/** Entries of a transfer table. */
const FINE = 1024;
/** A side of the box at least, of the longest: a sheet of air a hundred times as wide as high could not be seen. */
export const THIN = 0.1;
/** How often tiles are shown: milliseconds. */
const SHOW = 120;

interface Drawn { level: Level | null; extent: Vector3 }

export class View {
  readonly renderer: WebGLRenderer;
  readonly gl: WebGL2RenderingContext;
  private full = new WebGLRenderTarget(1, 1, { depthBuffer: false, minFilter: NearestFilter, magFilter: NearestFilter });
  private quick = new WebGLRenderTarget(1, 1, { depthBuffer: false, minFilter: LinearFilter, magFilter: LinearFilter });
  private camera = new Camera();
  /** By the length of a step: what a sample gives and what it leaves. */
  private tables = new Map<number, DataTexture>();
  private rays: RawShaderMaterial;
  private copy: RawShaderMaterial;
  private scene = new Scene();
  private mesh: Mesh;
  private volumes: Drawn[] = [];
  private scale = 0.3;
  private moved = 0;
  private busy = false;
  private begun = false;
  /** Ends the wait for stillness. */
  private rouse: () => void = () => {};
  private tiles: [number, number, number, number, number][] = [];
  /** Tiles between two fences, and how many at least. */
  private batch = 4;
  private least = 1;
  private painted = 0;
  density = 1;
  missing = 2;
  table: Uint8Array<ArrayBuffer> = new Uint8Array(1024);
  /** When the user's hand moved first after the last picture. */
  private asked: number | null = null;
  /** For whoever watches: milliseconds of the last quick picture, from the user's hand to its picture, of the slowest tile, until full
   * detail; whether it is reached; levels that were given to be drawn. */
  readonly stats = { quick: 0, answer: 0, tile: 0, full: 0, scale: 0, done: false, frames: 0, shown: 0 };

  constructor(readonly canvas: HTMLCanvasElement, private orbit: () => Orbit) {
    // Fails where there is no WebGL 2: quietly, for the page says so.
    const wanted = { antialias: false, preserveDrawingBuffer: true, powerPreference: 'high-performance' } as const;
    const context = canvas.getContext('webgl2', { ...wanted, alpha: true, depth: true, stencil: false, premultipliedAlpha: true });
    if (!context) throw new Error('no WebGL 2');
    this.renderer = new WebGLRenderer({ canvas, context, ...wanted });
    this.renderer.autoClear = false;
    this.gl = this.renderer.getContext() as WebGL2RenderingContext;
    const uniforms = Object.fromEntries(
      ['volume', 'blocks', 'transfer', 'eye', 'extent', 'cells', 'rays', 'pace', 'missing'].map((name) => [name, { value: null as unknown }]));
    const common = { glslVersion: GLSL3, vertexShader: VERTEX, depthTest: false, depthWrite: false };
    this.rays = new RawShaderMaterial({ ...common, fragmentShader: RAYS, uniforms });
    this.copy = new RawShaderMaterial({ ...common, fragmentShader: COPY, uniforms: { image: { value: null } } });
    const triangle = new BufferGeometry();
    triangle.setAttribute('position', new BufferAttribute(new Float32Array([-1, -1, 0, 3, -1, 0, -1, 3, 0]), 3));
    this.mesh = new Mesh(triangle, this.rays);
    this.mesh.frustumCulled = false;
    this.scene.add(this.mesh);
    new ResizeObserver(() => this.resize()).observe(canvas);
    this.resize();
  }

  show(number: number, level: Level | null, shape: [number, number, number]): void {
    const most = Math.max(...shape);
    this.volumes[number] = { level, extent: new Vector3().fromArray(shape.map((n) => Math.max(n / most, THIN))) };
    level?.mark(this.table, this.missing > 1);
    this.stats.shown++;
    this.wake(false);
  }

  /** Another transfer function. */
  colours(table: Uint8Array<ArrayBuffer>, density: number, missing: boolean): void {
    this.table = table;
    this.density = density;
    this.missing = missing ? 2 : 1;
    this.forget();
    this.volumes.forEach(({ level }) => level?.mark(table, missing));
    this.wake(true);
  }

  /** Sends the level to the graphics ahead of its being drawn; false: they have no room for it. */
  async upload(level: Level): Promise<boolean> {
    while (this.gl.getError() !== this.gl.NO_ERROR && !this.gl.isContextLost());
    this.renderer.initTexture(level.texture);
    level.mark(this.table, this.missing > 1);
    this.renderer.initTexture(level.blocks);
    await this.fence();
    return this.gl.getError() !== this.gl.OUT_OF_MEMORY;
  }

  /** Cells that a side may have. */
  get side(): number {
    return this.gl.getParameter(this.gl.MAX_3D_TEXTURE_SIZE) as number;
  }

  /** Something has changed, by the user's hand or not. More may follow: full detail waits for stillness. */
  wake(moving: boolean): void {
    this.moved = performance.now();
    if (moving) this.asked ??= this.moved;
    this.begun = false;
    this.tiles = [];
    this.stats.done = false;
    this.rouse();
    void this.work();
  }

  private resize(): void {
    const ratio = Math.min(devicePixelRatio, 2), w = Math.max(1, Math.round(this.canvas.clientWidth * ratio)), h = Math.max(1, Math.round(this.canvas.clientHeight * ratio));
    if (this.canvas.width === w && this.canvas.height === h && this.full.width === w) return;
    this.renderer.setSize(w, h, false);
    this.full.setSize(w, h);
    this.wake(false);
  }

  private async work(): Promise<void> {
    if (this.busy) return;
    this.busy = true;
    while (!this.stats.done && this.volumes.length > 0) {
      if (!this.begun) {
        this.begun = true;
        await this.drawQuick();
        continue;
      }
      const still = performance.now() - this.moved;
      if (still < STILL) {
        await new Promise<void>((go) => { this.rouse = go; setTimeout(go, STILL - still); });
        continue;
      }
      if (this.tiles.length === 0) {
        this.tiles = this.cut();
        // What has been drawn quickly stays to be seen where there is no tile yet.
        this.paint(this.quick, this.full);
        // A 32nd of the picture at least: the way to the graphics and back may take longer than a tile.
        this.least = Math.ceil(this.tiles.length / 32);
        this.batch = Math.max(this.least, Math.min(this.batch, 8));
      }
      await this.drawTile();
    }
    this.busy = false;
  }

  private async drawQuick(): Promise<void> {
    const scale = this.scale, w = Math.max(1, Math.round(this.full.width * scale)), h = Math.max(1, Math.round(this.full.height * scale));
    if (this.quick.width !== w || this.quick.height !== h) this.quick.setSize(w, h);
    const began = performance.now(), { asked } = this;
    this.asked = null;
    this.volumes.forEach((_, number) => this.draw(this.quick, number, 2.2 / Math.max(scale, 0.4), null));
    this.paint(this.quick, null);
    await this.fence();
    const took = performance.now() - began;
    this.stats.quick = took;
    if (asked !== null) this.stats.answer = began + took - asked;
    this.stats.scale = scale;
    this.stats.frames++;
    if (took > MOVING) this.scale = Math.max(0.12, scale * Math.max(0.5, Math.sqrt(MOVING / took)));
    else if (took < MOVING * 0.6) this.scale = Math.min(1, scale * 1.15);
  }

  /** Tiles of all volumes, those in the middle first. */
  private cut(): [number, number, number, number, number][] {
    const tiles: [number, number, number, number, number][] = [], side = 32;
    this.stats.tile = 0;
    this.volumes.forEach((_, number) => {
      const [left, width] = this.column(this.full, number), height = this.full.height;
      for (let y = 0; y < height; y += side) for (let x = 0; x < width; x += side)
        tiles.push([number, left + x, y, Math.min(side, width - x), Math.min(side, height - y)]);
    });
    const far = ([n, x, y]: number[]) => {
      const [left, width] = this.column(this.full, n);
      return Math.hypot(x + side / 2 - left - width / 2, y + side / 2 - this.full.height / 2);
    };
    return tiles.sort((a, b) => far(b) - far(a));
  }

  /** As many tiles as are done in the time of one, by what the last took. */
  private async drawTile(): Promise<void> {
    const began = performance.now();
    for (let n = 0; n < Math.round(this.batch); n++) {
      const tile = this.tiles.pop();
      if (!tile) break;
      const [number, ...box] = tile;
      this.draw(this.full, number, 1, box);
    }
    const last = this.tiles.length === 0;
    if (last || began - this.painted > SHOW) {
      this.painted = began;
      this.paint(this.full, null);
    }
    await this.fence();
    const took = performance.now() - began;
    this.stats.tile = Math.max(this.stats.tile, took);
    this.batch = Math.max(this.least, Math.min(512, this.batch * Math.min(1.3, Math.max(0.4, TILE / took))));
    // Something may have come in between.
    if (last && this.begun && this.tiles.length === 0) {
      this.stats.done = true;
      this.stats.full = performance.now() - this.moved;
    }
  }

  private forget(): void {
    this.tables.forEach((table) => table.dispose());
    this.tables.clear();
  }

  /** Light (times opacity) and what is let through, of a step of this length. */
  private tableFor(length: number): DataTexture {
    const had = this.tables.get(length);
    if (had) return had;
    // Lengths of steps change with the scale while moving.
    if (this.tables.size > 32) this.forget();
    const data = new Float32Array(4 * FINE), { table } = this;
    for (let i = 0; i < FINE; i++) {
      const at = (i / (FINE - 1)) * 255, below = Math.min(254, Math.floor(at)), share = at - below;
      const entry = (c: number) => (table[4 * below + c] * (1 - share) + table[4 * below + 4 + c] * share) / 255;
      const opacity = entry(3), part = 1 - Math.exp(-length * this.density * opacity * opacity * 28);
      data.set([entry(0) * part, entry(1) * part, entry(2) * part, 1 - part], 4 * i);
    }
    const made = new DataTexture(data, FINE, 1, RGBAFormat, FloatType);
    made.needsUpdate = true;
    this.tables.set(length, made);
    return made;
  }

  private column(target: WebGLRenderTarget, number: number): [number, number] {
    const left = Math.round((number * target.width) / this.volumes.length);
    return [left, Math.round(((number + 1) * target.width) / this.volumes.length) - left];
  }

  private draw(target: WebGLRenderTarget, number: number, pace: number, box: number[] | null): void {
    const { level, extent } = this.volumes[number], { camera } = this.orbit(), [left, width] = this.column(target, number);
    camera.aspect = width / target.height;
    // The volume fits into a narrow column too.
    camera.zoom = Math.min(1, camera.aspect);
    camera.updateProjectionMatrix();
    const u = this.rays.uniforms;
    target.viewport.set(left, 0, width, target.height);
    const [x, y, w, h] = box ?? [left, 0, width, target.height];
    target.scissor.set(x, y, w, h);
    target.scissorTest = true;
    u.rays.value = new Matrix4().multiplyMatrices(camera.matrixWorld, camera.projectionMatrixInverse);
    u.eye.value = camera.position;
    u.extent.value = extent;
    u.volume.value = level?.texture ?? null;
    u.blocks.value = level?.blocks ?? null;
    u.cells.value = level ? new Vector3(...level.size) : new Vector3(1, 1, 1);
    const step = level ? pace * Math.min(...level.size.map((n, axis) => (2 * extent.getComponent(axis)) / n)) : 0;
    u.transfer.value = this.tableFor(step);
    u.pace.value = pace;
    u.missing.value = level?.missing ? this.missing : 0;
    this.rays.uniformsNeedUpdate = true;
    this.mesh.material = this.rays;
    this.renderer.setRenderTarget(target);
    this.renderer.render(this.scene, this.camera);
  }

  private paint(from: WebGLRenderTarget, to: WebGLRenderTarget | null): void {
    if (to) {
      to.viewport.set(0, 0, to.width, to.height);
      to.scissorTest = false;
    }
    this.copy.uniforms.image.value = from.texture;
    this.copy.uniformsNeedUpdate = true;
    this.mesh.material = this.copy;
    this.renderer.setRenderTarget(to);
    this.renderer.render(this.scene, this.camera);
  }

  /** When the graphics have done what they were told; other work goes on meanwhile. */
  private async fence(): Promise<void> {
    const { gl } = this, sync = gl.fenceSync(gl.SYNC_GPU_COMMANDS_COMPLETE, 0);
    gl.flush();
    const until = performance.now() + 5000;
    do await new Promise((go) => setTimeout(go, 1));
    while (sync && gl.clientWaitSync(sync, 0, 0) === gl.TIMEOUT_EXPIRED && performance.now() < until);
    gl.deleteSync(sync);
  }
}
