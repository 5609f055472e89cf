// Turning and zooming by mouse, touch and keyboard. One camera for all volumes.

import { PerspectiveCamera, Vector3 } from 'three';

export class Orbit {
  readonly camera = new PerspectiveCamera(35, 1, 0.05, 50);
  azimuth = 0.7;
  height = 0.45;
  distance = 5.9;
  private from: [number, number] | null = null;

  constructor(element: HTMLElement, private moved: () => void) {
    element.addEventListener('pointerdown', (event) => {
      this.from = [event.clientX, event.clientY];
      element.setPointerCapture(event.pointerId);
    });
    element.addEventListener('pointerup', () => { this.from = null; });
    element.addEventListener('pointermove', (event) => {
      if (!this.from) return;
      this.turn((this.from[0] - event.clientX) * 0.008, (event.clientY - this.from[1]) * 0.008);
      this.from = [event.clientX, event.clientY];
    });
    element.addEventListener('wheel', (event) => {
      event.preventDefault();
      this.zoom(Math.exp(Math.max(-100, Math.min(100, event.deltaY)) * 0.0015));
    }, { passive: false });
    this.place();
  }

  /** True when the key was one of its own. */
  key(key: string): boolean {
    const turn: Record<string, [number, number]> = { ArrowLeft: [-0.12, 0], ArrowRight: [0.12, 0], ArrowUp: [0, 0.12], ArrowDown: [0, -0.12] };
    if (turn[key]) this.turn(...turn[key]);
    else if (key === '+' || key === '=') this.zoom(0.88);
    else if (key === '-') this.zoom(1.14);
    else return false;
    return true;
  }

  turn(side: number, up: number): void {
    this.azimuth += side;
    this.height = Math.max(-1.5, Math.min(1.5, this.height + up));
    this.place();
    this.moved();
  }

  zoom(factor: number): void {
    this.distance = Math.max(1.2, Math.min(16, this.distance * factor));
    this.place();
    this.moved();
  }

  private place(): void {
    const flat = Math.cos(this.height);
    const eye = new Vector3(Math.sin(this.azimuth) * flat, Math.sin(this.height), Math.cos(this.azimuth) * flat);
    this.camera.position.copy(eye.multiplyScalar(this.distance));
    this.camera.lookAt(0, 0, 0);
    this.camera.updateMatrixWorld();
  }
}
