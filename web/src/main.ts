// The page: asks for news, has volumes loaded and drawn, and says how they are.

import * as api from './api';
import { MAPS } from './colours';
import { Orbit } from './orbit';
import { Course, lossOf, plot } from './plots';
import { Slices } from './slices';
import { Transfer } from './transfer';
import { View } from './view';
import { Volume } from './volume';
import { download, Film, picture } from './export';

/** Cells of all volumes together: what most graphics have room for. */
const BUDGET = 1 << 27;

const get = <T extends HTMLElement = HTMLInputElement>(id: string) => document.getElementById(id) as T;
const canvas = get<HTMLCanvasElement>('view');
let now: api.States = { token: '', now: 0, volumes: [] };
let paused = false;
let range: [number, number] | null = null;
let auto = true;
let place: number | undefined;
let tokens: string[] = [];
const volumes: Volume[] = [], courses: Course[] = [], labels: HTMLElement[] = [];

const orbit: Orbit = new Orbit(canvas, () => view.wake(true));
const view = new View(canvas, () => orbit);
const transfer = new Transfer(get<HTMLCanvasElement>('curve'), recolour);
const slices = new Slices(get('slices'), drawSlices);
const film = new Film(canvas, get<HTMLButtonElement>('movie'), notice);

function notice(text: string): void {
  get('notice').textContent = text;
}

function recolour(): void {
  view.colours(transfer.table(), 10 ** transfer.density, get('missing').checked);
}

const recorded = () => now.volumes.some((state) => state.steps);
const stepOf = (state: api.State) => (state.steps ? Math.min(place ?? 0, state.steps.length - 1) : undefined);

function drawSlices(): void {
  const state = now.volumes[0];
  if (state && !state.error) void slices.show(0, state, stepOf(state), range, transfer.map);
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
    notice(volumes.map((volume) => volume.fault).find(Boolean) ?? now.volumes.map((state) => state.error).find(Boolean) ?? '');
  }
}

function hear(): void {
  now.volumes.forEach((state, n) => {
    while (volumes.length <= n) {
      const number = volumes.length, label = document.createElement('div');
      volumes.push(new Volume(number));
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
    const state = now.volumes[number], volume = volumes[number];
    let fresh = false;
    if (state && !state.error && state.shape[0] > 0) {
      const choice = { how: get<HTMLSelectElement>('how').value, range, budget: BUDGET / now.volumes.length, step: stepOf(state) };
      const token = state.steps ? '' : tokens[number];
      fresh = await volume.next(state, token, choice, (level) => view.upload(level));
      if (fresh) {
        view.show(number, volume.level, state.shape);
        const { meta } = volume.level!;
        // What goes on coming while it is paused changes nothing, or a wider range would have it loaded again and again.
        if (auto && meta && (state.steps || !paused || !range)) widen(meta);
        const seen = `${meta?.step} ${range}`;
        if (number === 0 && sliced !== seen) drawSlices();
        sliced = seen;
      }
    }
    await new Promise((go) => setTimeout(go, fresh ? 5 : 40));
  }
}

/** The range of what was seen: it grows by enough to last, and is the same for all volumes. */
function widen(meta: api.Meta): void {
  if (meta.min === null || meta.max === null) return;
  const room = 0.04 * (meta.max - meta.min);
  if (range && meta.min >= range[0] && meta.max <= range[1]) return;
  setRange([Math.min(range?.[0] ?? meta.min, meta.min), Math.max(range?.[1] ?? -Infinity, meta.max + room)]);
}

function setRange(to: [number, number]): void {
  range = to[0] < to[1] ? to : [to[0], to[0] + 1e-6];
  // As many digits as tell a thousandth of the range apart.
  const digits = Math.max(0, Math.min(20, 3 - Math.floor(Math.log10(range[1] - range[0]))));
  get('from').value = String(Number(range[0].toFixed(digits)));
  get('to').value = String(Number(range[1].toFixed(digits)));
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
      facts.push(['rate', `${courses[n].rateNow.toFixed(3)}${sent} Gb/s`]);
      facts.push(['drawn', `${volumes[n].pace.toFixed(1)} steps/s`]);
      const ago = latency < 1000 ? `${latency.toFixed(0)} ms` : `${(latency / 1000).toFixed(0)} s`;
      facts.push(['last packet', state.receiving ? `${ago} ago` : 'receiver has ended', latency > 3000]);
    }
    facts.push(['shape', `${state.shape.join(' × ')}${level ? `, 1:${level.factor}` : ''}`]);
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
  get('detail').textContent = view.stats.done ? 'full detail' : `${Math.round(100 * view.stats.scale)}%`;
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
  for (const id of ['from', 'to']) get(id).addEventListener('change', () => {
    auto = false;
    get('auto').classList.remove('on');
    setRange([Number(get('from').value), Number(get('to').value)]);
  });
  get('auto').addEventListener('click', () => {
    auto = !auto;
    get('auto').classList.toggle('on', auto);
    if (auto) range = null;
  });
  get('play').addEventListener('click', () => setPaused(!paused));
  get('steps').addEventListener('input', () => { place = Number(get('steps').value); setPaused(true); });
  get('shot').addEventListener('click', () => void shoot());
  get('movie').addEventListener('click', () => film.toggle());
  addEventListener('keydown', (event) => {
    if (event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement || event.ctrlKey || event.metaKey) return;
    if (orbit.key(event.key)) event.preventDefault();
    else if (event.key === ' ') { setPaused(!paused); event.preventDefault(); }
    else if (event.key === 's') void shoot();
    else if (event.key === 'm') film.toggle();
  });
}

async function shoot(): Promise<void> {
  const blob = await picture(canvas, now.volumes.map((state, n) => `${state.name}  step ${volumes[n].level?.meta?.step ?? '–'}`));
  if (blob) download(blob, 'field.png');
}

wire();
recolour();
// For those who try the page by program.
Object.assign(window, { tidecast: { stats: view.stats, orbit, volumes, picture: () => picture(canvas, []) } });
void listen();
