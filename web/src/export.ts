// Pictures and films of what is shown.

export function download(blob: Blob, name: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** PNG of these, side by side and equally large, with a line of text at each volume. */
export function picture(canvases: HTMLCanvasElement[], lines: string[]): Promise<Blob | null> {
  const copy = document.createElement('canvas'), [first] = canvases, alone = canvases.length === 1;
  copy.height = alone ? first.height : 512;
  const width = alone ? first.width : copy.height;
  copy.width = width * canvases.length;
  const g = copy.getContext('2d')!, size = Math.max(12, copy.height / 50);
  g.imageSmoothingEnabled = false;
  canvases.forEach((canvas, n) => g.drawImage(canvas, n * width, 0, width, copy.height));
  g.font = `${size}px system-ui, sans-serif`;
  g.fillStyle = '#c9d1d9';
  lines.forEach((line, n) => g.fillText(line, (n * copy.width) / lines.length + size, 2 * size));
  return new Promise((done) => copy.toBlob(done, 'image/png'));
}

/** WebM, for as long as it is on. */
export class Film {
  private recorder: MediaRecorder | null = null;

  constructor(private canvas: HTMLCanvasElement, private button: HTMLButtonElement, private notice: (text: string) => void) {}

  toggle(): void {
    if (this.recorder) {
      this.recorder.stop();
      return;
    }
    if (typeof MediaRecorder === 'undefined' || !MediaRecorder.isTypeSupported('video/webm')) {
      this.notice('This browser cannot record WebM.');
      return;
    }
    const recorder = new MediaRecorder(this.canvas.captureStream(30), { mimeType: 'video/webm', videoBitsPerSecond: 12_000_000 }), parts: Blob[] = [];
    recorder.addEventListener('dataavailable', (event) => parts.push(event.data));
    recorder.addEventListener('stop', () => {
      this.recorder = null;
      this.button.classList.remove('on');
      this.button.textContent = 'Film';
      download(new Blob(parts, { type: 'video/webm' }), 'field.webm');
    });
    this.recorder = recorder;
    this.button.classList.add('on');
    this.button.textContent = 'Stop';
    recorder.start(500);
  }
}
