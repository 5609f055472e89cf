// Ray casting: emission and absorption along a ray through the box, blocks without anything to see are passed over.

export const VERTEX = `
in vec3 position;
out vec2 at;
void main() { at = position.xy; gl_Position = vec4(position.xy, 0.0, 1.0); }`;

export const RAYS = `
precision highp float;
precision highp sampler3D;
precision highp sampler2D;
uniform sampler3D volume, blocks;
uniform sampler2D transfer;
uniform vec3 eye, extent, cells;
uniform mat4 rays;
uniform float pace;
uniform int missing;
in vec2 at;
out vec4 colour;
float noise(vec2 p) { return fract(52.9829189 * fract(dot(p, vec2(0.06711056, 0.00583715)))); }
void main() {
  vec4 far = rays * vec4(at, 1.0, 1.0);
  vec3 way = normalize(far.xyz / far.w - eye);
  vec3 a = (-extent - eye) / way, b = (extent - eye) / way;
  vec3 near3 = min(a, b), far3 = max(a, b);
  float t = max(max(near3.x, near3.y), max(near3.z, 0.0)), end = min(far3.x, min(far3.y, far3.z));
  vec3 light = vec3(0.0);
  float left = 1.0;
  vec3 cell = 2.0 * extent / cells;
  float dt = pace * min(cell.x, min(cell.y, cell.z));
  vec3 span = vec3(textureSize(blocks, 0)), size = 8.0 / cells;
  t += dt * noise(gl_FragCoord.xy);
  for (int i = 0; i < 4096 && t < end && left > 0.01; i++) {
    vec3 p = (eye + way * t + extent) / (2.0 * extent);
    ivec3 block = clamp(ivec3(p / size), ivec3(0), ivec3(span) - 1);
    if (texelFetch(blocks, block, 0).r < 0.5) {
      vec3 inside = way / (2.0 * extent);
      vec3 wall = ((vec3(block) + step(0.0, inside)) * size - p) / inside;
      float out_ = max(min(wall.x, min(wall.y, wall.z)), 0.0);
      t += dt * max(1.0, ceil(out_ / dt));
      continue;
    }
    if (missing > 0 && texelFetch(volume, clamp(ivec3(p * cells), ivec3(0), ivec3(cells) - 1), 0).r < 0.002) {
      float part = missing > 1 ? 1.0 - exp(-dt * 2.2) : 0.0;
      light += left * part * vec3(0.75, 0.1, 0.36);
      left *= 1.0 - part;
    } else {
      float v = (texture(volume, p).r * 255.0 - 1.0) / 254.0;
      vec4 c = texelFetch(transfer, ivec2(int(clamp(v, 0.0, 1.0) * 1023.0 + 0.5), 0), 0);
      light += left * c.rgb;
      left *= c.a;
    }
    t += dt;
  }
  // The frame of the box, faintly.
  vec2 hit = vec2(max(near3.x, max(near3.y, near3.z)), min(far3.x, min(far3.y, far3.z)));
  float frame = 0.0;
  if (hit.x < hit.y) for (int i = 0; i < 2; i++) {
    vec3 q = abs(eye + way * hit[i]) / extent;
    float most = max(q.x, max(q.y, q.z)), least = min(q.x, min(q.y, q.z)), middle = q.x + q.y + q.z - most - least;
    frame = max(frame, smoothstep(0.993, 0.997, middle) * (i == 0 ? 1.0 : left));
  }
  light += frame * 0.16 * vec3(0.6, 0.75, 0.9);
  vec3 ground = mix(vec3(0.031, 0.043, 0.059), vec3(0.055, 0.075, 0.102), 0.5 + 0.5 * at.y);
  colour = vec4(light + left * ground, 1.0);
}`;

export const COPY = `
precision highp float;
uniform sampler2D image;
in vec2 at;
out vec4 colour;
void main() { colour = texture(image, at * 0.5 + 0.5); }`;
