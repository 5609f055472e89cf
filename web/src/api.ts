// What the viewer answers: see "Viewer" in docs/field-format.md.

export interface Slab {
  z: [number, number]; step: number; expected: number; received: number; recovered_of_step: number; packets: number; bytes: number;
  lost: number; recovered: number; rejected: number; stream: number; open: boolean; last: number;
}

export interface Closed { step: number; when: number; expected: number; received: number; recovered: number; missing: number; bytes: number }

export interface State {
  name: string; title: string; shape: [number, number, number]; step: number; closed: number; receiving: boolean; live: boolean;
  rate: number; last: number; made: number; slabs: Slab[]; history: Closed[]; steps: number[] | null; range: [number, number] | null; error: string | null;
}

export interface States { token: string; now: number; volumes: State[] }

export interface Meta {
  step: number; size: [number, number, number]; min: number | null; max: number | null; missing: number; milliseconds: number;
}

export interface Wish {
  step?: number; factor: number; how: string; box?: number[]; range?: [number, number] | null; signal?: AbortSignal;
}

// Kept for this tab and this port alone: what stays in the address bar is seen and bookmarked, and cookies go to all ports of a host.
const shown = new URL(location.href), given = shown.searchParams.get('token'), kept = `tidecast-view ${shown.pathname}`;
if (given) {
  sessionStorage.setItem(kept, given);
  shown.searchParams.delete('token');
  history.replaceState(null, '', shown);
}
const token = given ?? sessionStorage.getItem(kept);

async function ask(path: string, signal?: AbortSignal): Promise<Response> {
  const answer = await fetch(path, { headers: token ? { 'tidecast-token': token } : {}, ...(signal ? { signal } : {}) });
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => ({}));
  throw new Error(said.error ?? `${answer.status} ${answer.statusText}`);
}

export async function states(since: string, wait: number): Promise<States> {
  return (await ask(`api/state?since=${since}&wait=${wait}`)).json();
}

export async function cells(volume: number, wish: Wish): Promise<{ meta: Meta; bytes: Uint8Array<ArrayBuffer> }> {
  const query = new URLSearchParams({ factor: String(wish.factor), how: wish.how });
  if (wish.step !== undefined) query.set('step', String(wish.step));
  if (wish.box) query.set('box', wish.box.join(','));
  if (wish.range) { query.set('min', String(wish.range[0])); query.set('max', String(wish.range[1])); }
  const answer = await ask(`api/volumes/${volume}/cells?${query}`, wish.signal);
  const meta = JSON.parse(answer.headers.get('field') ?? '{}') as Meta;
  return { meta, bytes: new Uint8Array(await answer.arrayBuffer()) };
}
