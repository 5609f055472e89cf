// Colour maps, by a few of their colours; between them is blended.

const STOPS: Record<string, string> = {
  inferno: '000004 160b39 420a68 6a176e 932667 bc3754 dd513a f37819 fca50a f6d746 fcffa4',
  viridis: '440154 482475 414487 355f8d 2a788e 21918c 22a884 44bf70 7ad151 bddf26 fde725',
  magma: '000004 140e36 3b0f70 641a80 8c2981 b73779 de4968 f7705c fe9f6d fecf92 fcfdbf',
  ice: '03051a 101a46 1d3479 2c55a6 3f7fc4 5fa8d3 8fcbe0 bfe6ee e9f7fa ffffff',
  'cool to warm': '3b4cc0 6788ee 9abbff c9d7f0 edd1c2 f7a889 e26952 b40426',
  grey: '000000 ffffff',
};

export const MAPS = Object.keys(STOPS);

/** 256 colours, RGB. */
export function colours(name: string): Uint8Array {
  const stops = (STOPS[name] ?? STOPS.grey).split(' ').map((hex) => [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16)));
  const table = new Uint8Array(768);
  for (let i = 0; i < 256; i++) {
    const at = (i / 255) * (stops.length - 1), below = Math.min(Math.floor(at), stops.length - 2);
    for (let c = 0; c < 3; c++) table[3 * i + c] = stops[below][c] + (stops[below + 1][c] - stops[below][c]) * (at - below);
  }
  return table;
}
