// The page: asks for news, has volumes loaded and drawn, and says how they are.

import * as api from './api';
import { MAPS } from './colours';
import { Orbit } from './orbit';
import { Course, lossOf, plot } from './plots';
import { Range, written, type Span } from './range';
import { Slices } from './slices';
import { Transfer } from './transfer';
import { THIN, View } from './view';
import { Volume } from './volume';
import { download, Film, picture } from './export';

/** Cells of all volumes together: what most graphics have room for. */
const BUDGET = 1 << 27;
/** Without graphics a volume is only looked at for its range. */
const LOOKED_AT = 1 << 18;

const get = <T extends HTMLElement = HTMLInputElement>(id: string) => document.getElementById(id) as T;
const canvas = get<HTMLCanvasElement>('view');
let now: api.States = { token: '', now: 0, volumes: [] };
let paused = false;
let place: number | undefined;
let tokens: string[] = [];
const volumes: Volume[] = [], courses: Course[] = [], labels: HTMLElement[] = [], ranges: Range[] = [];
/** The volume that is sliced, and whose range is set. */
let which = 0;
/** The range that is wrong, until another is given. */
let complaint = '';

const orbit: Orbit = new Orbit(canvas, () => view?.wake(true));
const view = begun();
const transfer = new Transfer(get<HTMLCanvasElement>('curve'), recolour);
const slices = new Slices(get('slices'), drawSlices);
const film = new Film(canvas, get<HTMLButtonElement>('movie'), notice);

function notice(text: string): void {
  get('notice').textContent = text;
}

/** What draws volumes; without it slices take its place, and the page says why. */
function begun(): View | null {
  const without = (why: string) => {
    get('without').textContent = `${why} Slices, plots, ranges and recorded steps work all the same; what is missing is the volume itself and films of it.`;
    get('flat').append(get('slices'));
    get('flat').hidden = false;
    get<HTMLButtonElement>('movie').disabled = true;
  };
  canvas.addEventListener('webglcontextlost', () => without('The browser has taken WebGL away from this page (the graphics driver was restarted, or too many pages use it): load the page again.'));
  canvas.addEventListener('webglcontextrestored', () => location.reload());
  try {
    return new View(canvas, () => orbit);
  } catch {
    without('This browser has no WebGL 2, so that the volume cannot be drawn: switch hardware acceleration on, or use another browser or a host with graphics.');
    return null;
  }
}

const limits = () => ({ budget: (view ? BUDGET : LOOKED_AT) / Math.max(1, now.volumes.length), side: view?.side ?? Infinity });

function recolour(): void {
  view?.colours(transfer.table(), 10 ** transfer.density, get('missing').checked);
}

const recorded = () => now.volumes.some((state) => state.steps);
const stepOf = (state: api.State) => (state.steps ? Math.min(place ?? 0, state.steps.length - 1) : undefined);

function drawSlices(): void {
  const state = now.volumes[which];
  if (state && !state.error) void slices.show(which, state, stepOf(state), ranges[which].now, transfer.map);
}

/** News, for as long as the page is there. */
async function listen(): Promise<never> {
  for (;;) {
    try {
      const news = await api.states(now.token, 1000);
      now = news;
      hear();
      await new Promise((go) => setTimeout(go, 30));
    } catch {
      notice('The viewer does not answer; trying again.');
      await new Promise((go) => setTimeout(go, 1000));
      continue;
    }
    const fault = volumes.map((volume) => volume.fault).find(Boolean) ?? now.volumes.map((state) => state.error).find(Boolean);
    const coarse = view ? now.volumes.filter((state) => !state.error).map((state, n) => volumes[n].limit(state, limits())) : [];
    notice([complaint, fault ?? '', ...coarse].filter(Boolean).join(' '));
  }
}

function hear(): void {
  now.volumes.forEach((state, n) => {
    while (volumes.length <= n) {
      const number = volumes.length, label = document.createElement('div');
      volumes.push(new Volume(number));
      ranges.push(new Range());
      get<HTMLSelectElement>('which').append(new Option(state.name, String(number)));
      courses.push(new Course());
      label.className = 'label';
      get('labels').append(label);
      labels.push(label);
      void keep(number);
    }
    courses[n].add(state, now.now);
    if (!paused || !tokens[n]) tokens[n] = [state.step, state.closed, state.made, state.live ? state.last : 0].join();
  });
  const steps = Math.max(...now.volumes.map((state) => state.steps?.length ?? 0));
  const slider = get('steps');
  slider.hidden = !recorded();
  slider.max = String(steps - 1);
  if (recorded() && place === undefined) {
    place = 0;
    setPaused(true);
  }
  slider.value = String(place ?? 0);
  describe();
}

/** Loads what is next of a volume, over and over. */
async function keep(number: number): Promise<never> {
  let sliced = '';
  for (;;) {
    const state = now.volumes[number], volume = volumes[number], range = ranges[number];
    let fresh = false;
    if (state && !state.error && state.shape[0] > 0) {
      const step = stepOf(state), token = state.steps ? '' : tokens[number], key = step === undefined ? token : String(step);
      if (range.know(state.range)) tellRange();
      const choice = { how: get<HTMLSelectElement>('how').value, range: range.at(key), step, ...limits() };
      fresh = await volume.next(state, token, choice, async (level) => !view || view.upload(level));
      if (fresh) {
        view?.show(number, volume.level, state.shape);
        const { meta } = volume.level!;
        // What goes on coming while it is paused changes nothing, or a wider range would have it loaded again and again.
        if (meta && (state.steps || !paused || !choice.range) && range.take(key, meta.min, meta.max)) tellRange();
        const seen = `${meta?.step} ${range.now}`;
        if (number === which && sliced !== seen) drawSlices();
        sliced = seen;
      }
    }
    await new Promise((go) => setTimeout(go, fresh ? 5 : 40));
  }
}

/** Shows the range of the volume that is chosen, except where it is being written. */
function tellRange(): void {
  const range = ranges[which];
  get<HTMLSelectElement>('span').value = range.span;
  get('auto').classList.toggle('on', range.span !== 'fixed');
  if (!range.now) return;
  const [from, to] = written(range.now);
  for (const [id, text] of [['from', from], ['to', to]]) if (document.activeElement !== get(id)) get(id).value = text;
}

/** Has the chosen volume's range taken from its values, or kept as it is. */
function setSpan(span: Span): void {
  const range = ranges[which];
  complaint = '';
  if (!range) return;
  if (span === 'fixed') range.fix(range.now ?? [0, 1]);
  else range.follow(span);
  tellRange();
  drawSlices();
}

/** Takes one end of the range as the user writes it; the other stays as exact as it is. */
function setEnd(end: 0 | 1, text: string): void {
  const range = ranges[which], to: [number, number] = [...(range?.now ?? [0, 1])];
  // It is written: from now on the page shows here what counts.
  (document.activeElement as HTMLElement | null)?.blur();
  to[end] = Number(text);
  complaint = text.trim() === '' || !Number.isFinite(to[end]) ? 'A range has two numbers.' : to[0] > to[1] ? `The range from ${to[0]} to ${to[1]} is empty: it is not used.` : '';
  if (range && !complaint) range.fix(to);
  tellRange();
  drawSlices();
}

/** The least and the greatest value of what is drawn, in words. */
function valuesOf({ min, max }: api.Meta): string {
  if (min === null || max === null) return 'all are missing (NaN)';
  return min === max ? `all are ${min}` : `${Number(min.toPrecision(5))} to ${Number(max.toPrecision(5))}`;
}

function describe(): void {
  now.volumes.forEach((state, n) => {
    const last = state.steps ? state.history.at(-(state.steps.length - (place ?? 0))) : state.history.at(-1);
    const sum = (of: (slab: api.Slab) => number) => state.slabs.reduce((all, slab) => all + of(slab), 0);
    const filled = sum((slab) => slab.received + slab.recovered_of_step) / Math.max(1, sum((slab) => slab.expected));
    const level = volumes[n].level, loss = last ? lossOf(last) : 0;
    const latency = Math.max(0, (now.now - state.last) / 1e6);
    const facts: [string, string, boolean?][] = [['step', `${level?.meta?.step ?? '–'}${state.steps ? ` (${(place ?? 0) + 1} of ${state.steps.length})` : ''}`]];
    facts.push(['loss', `${loss.toFixed(2)}%`, loss > 0.5]);
    if (!state.steps) {
      facts.push(['fill', `${(100 * Math.min(1, filled)).toFixed(1)}%`]);
      const sent = state.rate ? ` of ${(state.rate / 1e9).toFixed(2)}` : '';
      facts.push(['rate', `${courses[n].rateNow.toFixed(3)}${sent} Gbit/s`]);
      facts.push(['drawn', `${volumes[n].pace.toFixed(1)} steps/s`]);
      const ago = latency < 1000 ? `${latency.toFixed(0)} ms` : `${(latency / 1000).toFixed(0)} s`;
      facts.push(['last packet', state.receiving ? `${ago} ago` : 'receiver has ended', latency > 3000]);
    }
    facts.push(['shape', `${state.shape.join(' × ')}${level ? `, 1:${level.factor}` : ''}`]);
    if (level?.meta) facts.push(['values', valuesOf(level.meta)]);
    if (view && Math.min(...state.shape) < THIN * Math.max(...state.shape)) facts.push(['scale', 'thin sides are drawn thicker']);
    const head = document.createElement('b'), list = document.createElement('dl');
    head.textContent = state.title && state.title !== 'recorded' ? `${state.name} · ${state.title}` : state.name;
    for (const [name, text, bad] of facts) {
      const dt = document.createElement('dt'), dd = document.createElement('dd');
      dt.textContent = name;
      dd.textContent = text;
      if (bad) dd.className = 'bad';
      list.append(dt, dd);
    }
    labels[n].replaceChildren(head, list);
  });
  get('at').textContent = paused ? 'paused' : recorded() ? 'playing' : 'live';
  get('detail').textContent = !view ? '' : view.stats.done ? 'full detail' : `${Math.round(100 * view.stats.scale)}%`;
  get('which').closest('label')!.hidden = now.volumes.length < 2;
  const course = (of: 'loss' | 'rate') => now.volumes.flatMap((state, n) => courses[n].lines(of, state, n));
  plot(get<HTMLCanvasElement>('loss'), course('loss'));
  plot(get<HTMLCanvasElement>('rate'), course('rate'));
}

function setPaused(to: boolean): void {
  paused = to;
  get('play').textContent = to ? 'Play' : 'Pause';
  get('play').classList.toggle('on', to);
}

/** Recorded steps, one after the other, each when the last is drawn. */
setInterval(() => {
  const steps = Number(get('steps').max) + 1;
  if (!recorded() || paused || steps < 2) return;
  place = ((place ?? 0) + 1) % steps;
  get('steps').value = String(place);
}, 250);
setInterval(describe, 250);

function wire(): void {
  for (const name of MAPS) get<HTMLSelectElement>('map').append(new Option(name));
  get('map').addEventListener('change', () => { transfer.map = get('map').value; transfer.draw(); recolour(); drawSlices(); });
  get('density').addEventListener('input', () => { transfer.density = Number(get('density').value); recolour(); });
  get('missing').addEventListener('change', recolour);
  (['from', 'to'] as const).forEach((id, end) => get(id).addEventListener('change', () => setEnd(end as 0 | 1, get(id).value)));
  get('span').addEventListener('change', () => setSpan(get<HTMLSelectElement>('span').value as Span));
  get('auto').addEventListener('click', () => setSpan(ranges[which]?.span === 'fixed' ? 'series' : 'fixed'));
  get('which').addEventListener('change', () => { which = Number(get('which').value); tellRange(); drawSlices(); });
  get('play').addEventListener('click', () => setPaused(!paused));
  get('steps').addEventListener('input', () => { place = Number(get('steps').value); setPaused(true); });
  get('shot').addEventListener('click', () => void shoot());
  get('movie').addEventListener('click', () => film.toggle());
  addEventListener('keydown', (event) => {
    if (event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement || event.ctrlKey || event.metaKey) return;
    if (orbit.key(event.key)) event.preventDefault();
    else if (event.key === ' ') { setPaused(!paused); event.preventDefault(); }
    else if (event.key === 's') void shoot();
    else if (event.key === 'm' && view) film.toggle();
  });
}

/** The volumes, or the slices where there is nothing to draw volumes with. */
function shot(): Promise<Blob | null> {
  const line = (state: api.State, n: number) => `${state.name}  step ${volumes[n].level?.meta?.step ?? '–'}`;
  return view ? picture([canvas], now.volumes.map(line)) : picture(slices.pictures, now.volumes.slice(which, which + 1).map((state) => line(state, which)));
}

async function shoot(): Promise<void> {
  const blob = await shot();
  if (blob) download(blob, 'field.png');
}

wire();
recolour();
// For those who try the page by program.
Object.assign(window, { tidecast: { stats: view?.stats ?? null, orbit, volumes, ranges, picture: shot } });
void listen();
