// What a sharpened or a B-cos layer does besides its convolution, in one pass over the responses each way.
//
// The same formulas as scs.py and bcos.py beside this file, whose operations each wait for memory. All maps are dense
// and channels last: pixel by pixel, the channels of a pixel side by side. Plain C symbols, called by fused.py through
// ctypes: neither Python nor torch is needed to build this.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

// One copy of each loop per instruction set, chosen when the library is loaded.
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define EVERY_CPU __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define EVERY_CPU
#endif
#define INLINE static inline __attribute__((always_inline))
#define RESTRICT __restrict  // so many arrays that a compiler would rather not vectorise than look for overlaps

namespace {

constexpr int64_t BLOCK = 256;  // numbers worked on at a time: long enough for vectors, and in the first cache

// Logarithms and powers of 2 that a compiler can vectorise. Double precision is for tests, and takes the library's.

INLINE float log2_of(float x) {  // x > 0, normal
  int32_t bits;
  std::memcpy(&bits, &x, 4);
  const int32_t shifted = bits - 0x3f3504f3;  // 1/sqrt(2): the mantissa then lies in [sqrt(1/2), sqrt(2))
  const int32_t exponent = shifted >> 23;
  bits -= exponent << 23;
  float m;
  std::memcpy(&m, &bits, 4);
  // log(1 + f) = f - f²/2 + f³ Q(f), Q fitted to 1e-8 over the mantissas
  const float f = m - 1.0f, z = f * f;
  float q = -0.0738881901f;
  q = q * f + 0.126288787f;
  q = q * f - 0.131949097f;
  q = q * f + 0.142249599f;
  q = q * f - 0.166220009f;
  q = q * f + 0.199999884f;
  q = q * f - 0.250008345f;
  q = q * f + 0.333333492f;
  const float log = f + (z * f * q - 0.5f * z);
  const float y = static_cast<float>(exponent) + (log * 0.44269504089f + log);  // · log2(e), of which 1 is exact
  return x < std::numeric_limits<float>::infinity() ? y : x;  // also where x is no number
}

INLINE float exp2_of(float x) {
  const float held = x > 252.0f ? 252.0f : (x < -252.0f ? -252.0f : x);
  const float rounded = (held + 12582912.0f) - 12582912.0f;  // 1.5 · 2²³: to the nearest integer
  const float f = held - rounded;
  const int32_t n = static_cast<int32_t>(rounded), low = n >> 1, high = n - low;
  float series = 0.000154673457f;  // 2^f, fitted to 1e-8
  series = series * f + 0.00134003896f;
  series = series * f + 0.00961803645f;
  series = series * f + 0.0555032752f;
  series = series * f + 0.240226507f;
  series = series * f + 0.693147182f;
  series = series * f + 1.0f;
  // In two steps, so that what underflows does so gradually.
  const int32_t a = (low + 127) << 23, b = (high + 127) << 23;
  float first, second;
  std::memcpy(&first, &a, 4);
  std::memcpy(&second, &b, 4);
  return series * first * second;
}

INLINE double log2_of(double x) { return std::log2(x); }
INLINE double exp2_of(double x) { return std::exp2(x); }

template <typename T>
INLINE T size_of(T x) {
  return x < 0 ? -x : x;
}

template <typename T>
INLINE T sign_of(T x) {  // NaN stays what it is
  return x > 0 ? T(1) : (x < 0 ? T(-1) : x);
}

struct Share {  // of the work, for one thread
  int64_t begin, end;
};

struct Window {  // of a pooling, or of a convolution's patches: rows, then columns
  int64_t kernel[2], stride[2], padding[2], dilation[2];
};

INLINE int64_t pixel_at(int64_t out, int64_t offset, const Window& w, int dim) {
  return out * w.stride[dim] - w.padding[dim] + offset * w.dilation[dim];
}

INLINE bool is_pixel(const Window& w) {  // no pooling at all
  return w.kernel[0] == 1 && w.kernel[1] == 1 && w.stride[0] == 1 && w.stride[1] == 1 && !w.padding[0] && !w.padding[1];
}

INLINE bool tiles(const Window& w) {
  return w.stride[0] == w.kernel[0] && w.stride[1] == w.kernel[1] && !w.padding[0] && !w.padding[1] &&
         w.dilation[0] == 1 && w.dilation[1] == 1;
}

struct Maps {  // images, height and width before and after a pooling or a convolution, channels
  int64_t images, height, width, down, across, channels;
};

// The winner of one window and, if CODES, where it lies: the largest, or in magnitude, of equal ones the first.
template <bool CODES, typename T>
INLINE void winners(const T* u, const T* inverse, const Maps& m, const Window& w, int64_t row, int64_t column,
                    bool magnitude, T* best, int32_t* code) {
  const int64_t count = m.channels;
  bool begun = false;
  for (int64_t i = 0; i < w.kernel[0]; ++i) {
    const int64_t y = pixel_at(row, i, w, 0);
    if (y < 0 || y >= m.height) continue;
    for (int64_t j = 0; j < w.kernel[1]; ++j) {
      const int64_t x = pixel_at(column, j, w, 1);
      if (x < 0 || x >= m.width) continue;
      const int64_t pixel = y * m.width + x;
      const T scale = inverse ? inverse[pixel] : T(1);
      const T* from = u + pixel * m.channels;
      const int32_t here = static_cast<int32_t>(i * w.kernel[1] + j);
      if (!begun) {
        for (int64_t c = 0; c < count; ++c) {
          best[c] = from[c] * scale;
          if (CODES) code[c] = here;
        }
      } else if (magnitude) {
        for (int64_t c = 0; c < count; ++c) {
          const T value = from[c] * scale;
          const bool wins = size_of(value) > size_of(best[c]) || value != value;
          best[c] = wins ? value : best[c];
          if (CODES) code[c] = wins ? here : code[c];
        }
      } else {
        for (int64_t c = 0; c < count; ++c) {
          const T value = from[c] * scale;
          const bool wins = value > best[c] || value != value;
          best[c] = wins ? value : best[c];
          if (CODES) code[c] = wins ? here : code[c];
        }
      }
      begun = true;
    }
  }
}

// Pixels whose channels are sharpened at a time, and the exponents of as many.
INLINE int64_t pixels_at_once(int64_t channels) { return std::max<int64_t>(1, BLOCK / channels); }

template <typename T>
INLINE void repeat(const T* p, int64_t channels, int64_t times, T* to) {
  for (int64_t k = 0; k < times; ++k) std::copy(p, p + channels, to + k * channels);
}

template <typename T>
INLINE void powers(T* c, const T* p, int64_t count, T eps, bool relu, T* y) {
  if (relu)
    for (int64_t k = 0; k < count; ++k) c[k] = c[k] < 0 ? T(0) : c[k];
  for (int64_t k = 0; k < count; ++k) {
    const T size = exp2_of(p[k] * log2_of(size_of(c[k]) + eps));
    y[k] = c[k] == 0 ? c[k] : std::copysign(size, c[k]);
  }
}

template <typename T>
INLINE void scaled(const T* from, const T* inverse, int64_t pixels, int64_t channels, T* to) {
  for (int64_t k = 0; k < pixels; ++k) {
    const T scale = inverse ? inverse[k] : T(1);
    for (int64_t c = 0; c < channels; ++c) to[k * channels + c] = from[k * channels + c] * scale;
  }
}

template <typename T>
INLINE void sharpen(Share lines, const T* u, const T* inverse, const T* p, T* y, T* kept, uint8_t* codes,
                    const Maps& m, const Window& w, T eps, bool magnitude, bool relu) {
  const int64_t group = pixels_at_once(m.channels), area = m.height * m.width;
  std::vector<T> exponents(group * m.channels), best(group * m.channels);
  std::vector<int32_t> code(group * m.channels);
  repeat(p, m.channels, group, exponents.data());
  for (int64_t line = lines.begin; line < lines.end; ++line) {
    const int64_t image = line / m.down, row = line % m.down;
    const T* responses = u + image * area * m.channels;
    const T* scale = inverse ? inverse + image * area : nullptr;
    for (int64_t first = 0; first < m.across; first += group) {
      const int64_t pixels = std::min(group, m.across - first), count = pixels * m.channels;
      const int64_t start = (line * m.across + first) * m.channels;
      T* b = best.data();
      if (is_pixel(w)) {
        const int64_t at = row * m.width + first;
        scaled(responses + at * m.channels, scale ? scale + at : nullptr, pixels, m.channels, b);
      } else if (codes) {
        for (int64_t k = 0; k < pixels; ++k)
          winners<true>(responses, scale, m, w, row, first + k, magnitude, b + k * m.channels,
                        code.data() + k * m.channels);
      } else {
        for (int64_t k = 0; k < pixels; ++k)
          winners<false, T>(responses, scale, m, w, row, first + k, magnitude, b + k * m.channels, nullptr);
      }
      powers(best.data(), exponents.data(), count, eps, relu, y + start);
      if (kept) std::copy(best.begin(), best.begin() + count, kept + start);
      if (codes)
        for (int64_t k = 0; k < count; ++k) codes[start + k] = static_cast<uint8_t>(code[k]);
    }
  }
}

// The gradient of c, and its product with c; adds to the gradient of p if that is wanted.
template <typename T>
INLINE void slopes(const T* RESTRICT grad, const T* RESTRICT c, const T* RESTRICT p, int64_t count, T eps,
                   T* RESTRICT flow, T* RESTRICT product, T* RESTRICT grad_p) {
  constexpr T LN2 = T(0.693147180559945309417);
  for (int64_t k = 0; k < count; ++k) {
    const T size = size_of(c[k]) + eps, log = log2_of(size), slope = exp2_of((p[k] - 1) * log) * grad[k];
    const bool zero = c[k] == 0;
    flow[k] = zero ? T(0) : p[k] * slope;
    product[k] = flow[k] * c[k];
    grad_p[k] += LN2 * log * ((zero ? T(0) : std::copysign(size, c[k])) * slope);
  }
}

template <typename T>
INLINE T scatter(const T* flow, const T* product, const int32_t* code, int32_t here, T scale, int64_t count, T* to) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t c = 0; c < count; ++c) {
    const bool won = code[c] == here;
    to[c] = won ? flow[c] * scale : T(0);
    sum += won ? product[c] : T(0);
  }
  return sum;
}

template <typename T>
INLINE T scatter_add(const T* flow, const T* product, const int32_t* code, int32_t here, T scale, int64_t count,
                     T* to) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t c = 0; c < count; ++c) {
    const bool won = code[c] == here;
    to[c] += won ? flow[c] * scale : T(0);
    sum += won ? product[c] : T(0);
  }
  return sum;
}

// What reaches ‖patch‖ at each pixel: -1/(‖patch‖ + q) times the sum of its channels' products.
template <typename T>
INLINE void add_products(const T* product, const T* scale, int64_t place, int64_t pixels, int64_t channels, T* norms) {
  for (int64_t k = 0; k < pixels; ++k) {
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < channels; ++c) sum += product[k * channels + c];
    norms[place + k] = -(scale ? scale[place + k] : T(1)) * sum;
  }
}

template <typename T>
INLINE void clear_uncovered(T* full, const Maps& m, const Window& w) {
  const int64_t below = std::min(m.down * w.kernel[0], m.height), right = std::min(m.across * w.kernel[1], m.width);
  std::fill(full + below * m.width * m.channels, full + m.height * m.width * m.channels, T(0));
  for (int64_t y = 0; y < below; ++y)
    std::fill(full + (y * m.width + right) * m.channels, full + (y + 1) * m.width * m.channels, T(0));
}

// Send the gradients of one pooled pixel to where it came from.
template <typename T>
INLINE void unpool(const T* flow, const T* product, const int32_t* code, const T* scale, T* full, T* norms,
                   const Maps& m, const Window& w, int64_t row, int64_t column, bool apart) {
  for (int64_t i = 0; i < w.kernel[0]; ++i) {
    const int64_t y = pixel_at(row, i, w, 0);
    if (y < 0 || y >= m.height) continue;
    for (int64_t j = 0; j < w.kernel[1]; ++j) {
      const int64_t x = pixel_at(column, j, w, 1);
      if (x < 0 || x >= m.width) continue;
      const int64_t pixel = y * m.width + x;
      const T r = scale ? scale[pixel] : T(1);
      const int32_t here = static_cast<int32_t>(i * w.kernel[1] + j);
      T* target = full + pixel * m.channels;
      const T sum = apart ? scatter(flow, product, code, here, r, m.channels, target)
                          : scatter_add(flow, product, code, here, r, m.channels, target);
      if (norms) norms[pixel] -= r * sum;
    }
  }
}

template <typename T>
INLINE void sharpen_backward(Share images, const T* grad, const T* kept, const uint8_t* codes, const T* inverse,
                             const T* p, T* to, T* grad_norm, T* grad_p, const Maps& m, const Window& w, T eps) {
  const int64_t group = pixels_at_once(m.channels), block = group * m.channels, area = m.height * m.width;
  std::vector<T> exponents(block), flow(block), product(block), grad_exponents(block, T(0));
  std::vector<int32_t> code(block, 0);
  repeat(p, m.channels, group, exponents.data());
  const bool apart = tiles(w);
  for (int64_t image = images.begin; image < images.end; ++image) {
    T* full = to + image * area * m.channels;
    const T* scale = inverse ? inverse + image * area : nullptr;
    T* norms = grad_norm ? grad_norm + image * area : nullptr;
    if (norms) std::fill(norms, norms + area, T(0));
    if (apart) {
      clear_uncovered(full, m, w);
    } else {
      std::fill(full, full + area * m.channels, T(0));
    }
    for (int64_t row = 0; row < m.down; ++row)
      for (int64_t first = 0; first < m.across; first += group) {
        const int64_t pixels = std::min(group, m.across - first), count = pixels * m.channels;
        const int64_t at = ((image * m.down + row) * m.across + first) * m.channels;
        slopes(grad + at, kept + at, exponents.data(), count, eps, flow.data(), product.data(), grad_exponents.data());
        if (codes)
          for (int64_t k = 0; k < count; ++k) code[k] = codes[at + k];
        if (is_pixel(w)) {
          const int64_t place = row * m.width + first;
          scaled(flow.data(), scale ? scale + place : nullptr, pixels, m.channels, full + place * m.channels);
          if (norms) add_products(product.data(), scale, place, pixels, m.channels, norms);
          continue;
        }
        for (int64_t k = 0; k < pixels; ++k) {
          const int64_t c = k * m.channels;
          unpool(flow.data() + c, product.data() + c, code.data() + c, scale, full, norms, m, w, row, first + k, apart);
        }
      }
  }
  if (grad_p)
    for (int64_t k = 0; k < block; ++k) grad_p[k % m.channels] += grad_exponents[k];
}

// Which outputs 0 … count-1 have the pixel that lies `offset` into their window inside the image.
INLINE Share inside(int64_t offset, int64_t count, int64_t side, const Window& w, int dim) {
  Share share{0, count};
  while (share.begin < count && pixel_at(share.begin, offset, w, dim) < 0) ++share.begin;
  while (share.end > share.begin && pixel_at(share.end - 1, offset, w, dim) >= side) --share.end;
  return share;
}

template <typename T>
INLINE void add_line(const T* from, int64_t step_from, T* to, int64_t step_to, int64_t count) {
  if (step_from == 1 && step_to == 1) {
    for (int64_t k = 0; k < count; ++k) to[k] += from[k];
  } else {
    for (int64_t k = 0; k < count; ++k) to[k * step_to] += from[k * step_from];
  }
}

// Sums over windows, rows and then columns; transposed: from the windows back to their pixels.
template <typename T>
INLINE void box_sum(const T* from, T* between, T* to, const Maps& m, const Window& w, bool transposed) {
  std::fill(between, between + m.height * m.across, T(0));
  std::fill(to, to + (transposed ? m.height * m.width : m.down * m.across), T(0));
  if (transposed) {
    for (int64_t i = 0; i < w.kernel[0]; ++i) {
      const Share rows = inside(i, m.down, m.height, w, 0);
      for (int64_t row = rows.begin; row < rows.end; ++row)
        add_line(from + row * m.across, 1, between + pixel_at(row, i, w, 0) * m.across, 1, m.across);
    }
  }
  for (int64_t j = 0; j < w.kernel[1]; ++j) {
    const Share columns = inside(j, m.across, m.width, w, 1);
    const int64_t count = columns.end - columns.begin, at = pixel_at(columns.begin, j, w, 1);
    for (int64_t y = 0; y < m.height; ++y) {
      if (transposed) {
        add_line(between + y * m.across + columns.begin, 1, to + y * m.width + at, w.stride[1], count);
      } else {
        add_line(from + y * m.width + at, w.stride[1], between + y * m.across + columns.begin, 1, count);
      }
    }
  }
  if (!transposed) {
    for (int64_t i = 0; i < w.kernel[0]; ++i) {
      const Share rows = inside(i, m.down, m.height, w, 0);
      for (int64_t row = rows.begin; row < rows.end; ++row)
        add_line(between + pixel_at(row, i, w, 0) * m.across, 1, to + row * m.across, 1, m.across);
    }
  }
}

// Of 16 channels, where adding up the lanes of a vector pixel by pixel would take most of the time: in halves.
template <typename T>
INLINE void energy_of_16(const T* x, T* energy, int64_t pixels) {
  constexpr int64_t MANY = 32;
  T lanes[8 * MANY], halves[4 * MANY], quarters[2 * MANY];
  for (int64_t first = 0; first < pixels; first += MANY) {
    const int64_t count = std::min(MANY, pixels - first);
    const T* from = x + first * 16;
    for (int64_t k = 0; k < count; ++k)
      for (int64_t j = 0; j < 8; ++j)
        lanes[k * 8 + j] = from[k * 16 + j] * from[k * 16 + j] + from[k * 16 + 8 + j] * from[k * 16 + 8 + j];
    for (int64_t k = 0; k < count; ++k)
      for (int64_t j = 0; j < 4; ++j) halves[k * 4 + j] = lanes[k * 8 + j] + lanes[k * 8 + 4 + j];
    for (int64_t k = 0; k < 2 * count; ++k) quarters[k] = halves[2 * k] + halves[2 * k + 1];
    for (int64_t k = 0; k < count; ++k) energy[first + k] = quarters[2 * k] + quarters[2 * k + 1];
  }
}

template <typename T>
INLINE void pixel_energy(const T* x, T* energy, int64_t pixels, int64_t channels) {
  if (channels < 8) {  // too few for a vector: pixel by pixel side by side
    for (int64_t k = 0; k < pixels; ++k) energy[k] = x[k * channels] * x[k * channels];
    for (int64_t c = 1; c < channels; ++c)
      for (int64_t k = 0; k < pixels; ++k) energy[k] += x[k * channels + c] * x[k * channels + c];
    return;
  }
  if (channels == 16) return energy_of_16(x, energy, pixels);
  for (int64_t k = 0; k < pixels; ++k) {
    const T* from = x + k * channels;
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < channels; ++c) sum += from[c] * from[c];
    energy[k] = sum;
  }
}

// ‖patch‖ = sqrt(Σ x² + eps), and 1/(‖patch‖ + q) if it is wanted.
template <typename T>
INLINE void patch_norm(Share images, const T* x, T* norm, T* inverse, const Maps& m, const Window& w, T eps, T q) {
  const int64_t area = m.height * m.width, patches = m.down * m.across;
  std::vector<T> energy(area), between(m.height * m.across);
  for (int64_t image = images.begin; image < images.end; ++image) {
    T* length = norm + image * patches;
    pixel_energy(x + image * area * m.channels, energy.data(), area, m.channels);
    box_sum(energy.data(), between.data(), length, m, w, false);
    for (int64_t k = 0; k < patches; ++k) length[k] = std::sqrt(length[k] + eps);
    if (inverse)
      for (int64_t k = 0; k < patches; ++k) inverse[image * patches + k] = T(1) / (length[k] + q);
  }
}

// grad_x += x · Σ over the patches that hold the pixel of grad_norm/‖patch‖, for d‖patch‖/dx = x/‖patch‖.
template <typename T>
INLINE void norm_gradient(Share images, const T* x, const T* grad_norm, const T* norm, T* grad_x, const Maps& m,
                          const Window& w) {
  const int64_t area = m.height * m.width, patches = m.down * m.across;
  std::vector<T> shares(patches), between(m.height * m.across), spread(area);
  for (int64_t image = images.begin; image < images.end; ++image) {
    for (int64_t k = 0; k < patches; ++k) shares[k] = grad_norm[image * patches + k] / norm[image * patches + k];
    box_sum(shares.data(), between.data(), spread.data(), m, w, true);
    for (int64_t pixel = 0; pixel < area; ++pixel) {
      const int64_t at = (image * area + pixel) * m.channels;
      const T share = spread[pixel];
      for (int64_t c = 0; c < m.channels; ++c) grad_x[at + c] += share * x[at + c];
    }
  }
}

// |cos|^(B-1).
template <typename T>
INLINE T alignment(T cosine, T power, T eps) {
  return power == 1 ? cosine : exp2_of(power * log2_of(cosine + eps));
}

template <typename T>
INLINE void align(Share pixels, const T* u, const T* norm, T* y, int64_t units, int64_t rivals, T power, T eps, T scale) {
  for (int64_t pixel = pixels.begin; pixel < pixels.end; ++pixel) {
    const T* first = u + pixel * units * rivals;
    const T* second = rivals == 2 ? first + units : first;
    T* out = y + pixel * units;
    const T length = norm[pixel];
    if (power == 1) {  // B = 2: no logarithm, and the order of the published package
      for (int64_t k = 0; k < units; ++k) {
        const T value = second[k] > first[k] || second[k] != second[k] ? second[k] : first[k];
        out[k] = value * (size_of(value) / (length / scale));
      }
    } else {
      for (int64_t k = 0; k < units; ++k) {
        const T value = second[k] > first[k] || second[k] != second[k] ? second[k] : first[k];
        out[k] = value * (alignment(size_of(value) / length, power, eps) * scale);
      }
    }
  }
}

// SQUARE: B = 2. No choice inside the loop, or both sides of it are computed for every number.
template <bool SQUARE, bool PAIRED, typename T>
INLINE void align_backward_as(Share pixels, const T* u, const T* norm, const T* grad, T* to, T* share, int64_t units,
                              T power, T eps, T scale) {
  for (int64_t pixel = pixels.begin; pixel < pixels.end; ++pixel) {
    const int64_t start = pixel * units * (PAIRED ? 2 : 1);
    const T *first = u + start, *second = first + units, *from = grad + pixel * units;
    T *to_first = to + start, *to_second = to_first + units;
    const T inverse = T(1) / norm[pixel], factor = SQUARE ? inverse * scale : scale;
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t k = 0; k < units; ++k) {
      const bool later = PAIRED && second[k] > first[k];
      const T value = later ? second[k] : first[k], size = size_of(value);
      // What reaches u through |cos|, as a share of what reaches it directly: (B-1)·|cos|/(|cos| + eps).
      const T cosine = size * inverse, apart = cosine + eps;
      const T flow = (SQUARE ? size : exp2_of(power * log2_of(apart))) * factor * from[k];
      const T through = SQUARE ? flow : flow * (power * cosine / apart);
      sum += through * value;
      const T total = flow + through;
      to_first[k] = later ? T(0) : total;
      if (PAIRED) to_second[k] = later ? total : T(0);
    }
    share[pixel] = -sum * inverse;
  }
}

template <typename T>
INLINE void align_backward(Share pixels, const T* u, const T* norm, const T* grad, T* to, T* share, int64_t units,
                           int64_t rivals, T power, T eps, T scale) {
  const bool paired = rivals == 2;
  if (power == 1) {
    if (paired) align_backward_as<true, true>(pixels, u, norm, grad, to, share, units, power, eps, scale);
    else align_backward_as<true, false>(pixels, u, norm, grad, to, share, units, power, eps, scale);
  } else if (paired) {
    align_backward_as<false, true>(pixels, u, norm, grad, to, share, units, power, eps, scale);
  } else {
    align_backward_as<false, false>(pixels, u, norm, grad, to, share, units, power, eps, scale);
  }
}

// A loop inside an OpenMP region is not copied for every CPU; a function called from it is.
template <typename Work>
void in_parallel(int64_t count, int64_t threads, const Work& work) {
#pragma omp parallel for num_threads(static_cast<int>(threads)) schedule(static)
  for (int64_t thread = 0; thread < threads; ++thread)
    work(Share{count * thread / threads, count * (thread + 1) / threads}, thread);
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))
#define FOR_TYPE(T, NAME)                                                                                             \
  EVERY_CPU void NAME##_sharpen_part(Share lines, const T* u, const T* inverse, const T* p, T* y, T* kept,            \
                                     uint8_t* codes, const Maps& m, const Window& w, T eps, bool magnitude,           \
                                     bool relu) {                                                                     \
    sharpen(lines, u, inverse, p, y, kept, codes, m, w, eps, magnitude, relu);                                        \
  }                                                                                                                   \
  EXPORT void NAME##_sharpen(const T* u, const T* inverse, const T* p, T* y, T* kept, uint8_t* codes, const Maps* m,  \
                             const Window* w, double eps, int64_t magnitude, int64_t relu, int64_t threads) {         \
    in_parallel(m->images * m->down, threads, [&](Share lines, int64_t) {                                             \
      NAME##_sharpen_part(lines, u, inverse, p, y, kept, codes, *m, *w, T(eps), magnitude, relu);                     \
    });                                                                                                               \
  }                                                                                                                   \
  EVERY_CPU void NAME##_sharpen_backward_part(Share images, const T* grad, const T* kept, const uint8_t* codes,       \
                                              const T* inverse, const T* p, T* to, T* grad_norm, T* grad_p,           \
                                              const Maps& m, const Window& w, T eps) {                                \
    sharpen_backward(images, grad, kept, codes, inverse, p, to, grad_norm, grad_p, m, w, eps);                        \
  }                                                                                                                   \
  EXPORT void NAME##_sharpen_backward(const T* grad, const T* kept, const uint8_t* codes, const T* inverse,           \
                                      const T* p, T* to, T* grad_norm, T* grad_p, const Maps* m, const Window* w,     \
                                      double eps, int64_t threads) { /* grad_p: (threads, channels), zeros */         \
    in_parallel(m->images, threads, [&](Share images, int64_t thread) {                                               \
      NAME##_sharpen_backward_part(images, grad, kept, codes, inverse, p, to, grad_norm,                              \
                                   grad_p ? grad_p + thread * m->channels : nullptr, *m, *w, T(eps));                 \
    });                                                                                                               \
  }                                                                                                                   \
  EVERY_CPU void NAME##_patch_norm_part(Share images, const T* x, T* norm, T* inverse, const Maps& m,                 \
                                        const Window& w, T eps, T q) {                                                \
    patch_norm(images, x, norm, inverse, m, w, eps, q);                                                               \
  }                                                                                                                   \
  EXPORT void NAME##_patch_norm(const T* x, T* norm, T* inverse, const Maps* m, const Window* w, double eps,          \
                                double q, int64_t threads) {                                                          \
    in_parallel(m->images, threads, [&](Share images, int64_t) {                                                      \
      NAME##_patch_norm_part(images, x, norm, inverse, *m, *w, T(eps), T(q));                                         \
    });                                                                                                               \
  }                                                                                                                   \
  EVERY_CPU void NAME##_norm_gradient_part(Share images, const T* x, const T* grad_norm, const T* norm, T* grad_x,    \
                                           const Maps& m, const Window& w) {                                          \
    norm_gradient(images, x, grad_norm, norm, grad_x, m, w);                                                          \
  }                                                                                                                   \
  EXPORT void NAME##_norm_gradient(const T* x, const T* grad_norm, const T* norm, T* grad_x, const Maps* m,           \
                                   const Window* w, int64_t threads) {                                                \
    in_parallel(m->images, threads, [&](Share images, int64_t) {                                                      \
      NAME##_norm_gradient_part(images, x, grad_norm, norm, grad_x, *m, *w);                                          \
    });                                                                                                               \
  }                                                                                                                   \
  EVERY_CPU void NAME##_align_part(Share pixels, const T* u, const T* norm, T* y, int64_t units, int64_t rivals, T power,\
                                   T eps, T scale) {                                                                  \
    align(pixels, u, norm, y, units, rivals, power, eps, scale);                                                      \
  }                                                                                                                   \
  EXPORT void NAME##_align(const T* u, const T* norm, T* y, int64_t pixels, int64_t units, int64_t rivals, double power,\
                           double eps, double scale, int64_t threads) {                                               \
    in_parallel(pixels, threads, [&](Share share, int64_t) {                                                          \
      NAME##_align_part(share, u, norm, y, units, rivals, T(power), T(eps), T(scale));                                \
    });                                                                                                               \
  }                                                                                                                   \
  EVERY_CPU void NAME##_align_backward_part(Share pixels, const T* u, const T* norm, const T* grad, T* to, T* share,  \
                                            int64_t units, int64_t rivals, T power, T eps, T scale) {                 \
    align_backward(pixels, u, norm, grad, to, share, units, rivals, power, eps, scale);                               \
  }                                                                                                                   \
  EXPORT void NAME##_align_backward(const T* u, const T* norm, const T* grad, T* to, T* share, int64_t pixels,        \
                                    int64_t units, int64_t rivals, double power, double eps, double scale, int64_t threads) {\
    in_parallel(pixels, threads, [&](Share part, int64_t) {                                                           \
      NAME##_align_backward_part(part, u, norm, grad, to, share, units, rivals, T(power), T(eps), T(scale));          \
    });                                                                                                               \
  }

FOR_TYPE(float, float32)
FOR_TYPE(double, float64)
