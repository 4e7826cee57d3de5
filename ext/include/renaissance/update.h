// The update of one parameter element, for every optimizer: the only place where formulas stand.
//
// w, m, v are float32; G is what backward left (scaled, summed over the window). Operations are in
// the order written, none contracted, so host and device agree bit for bit given equal gradients.
// A bias-like range has decay = coupled = 0.
#pragma once
#include "scalars.h"

namespace rn {

// The numbers of one update range, in registers.
struct Hyper {
  float lr, lr_decay, coupled;
  float b1, one_minus_b1, b2, one_minus_b2, eps, bc1, bc2;
  float unscale, clip, clip_limit;
};

RN_HD Hyper hyper_of(const Scalars& s, int row) {
  return {s.row_lr[row],  s.row_lr_decay[row], s.row_coupled[row], s.b1,      s.one_minus_b1,
          s.b2,           s.one_minus_b2,      s.eps_rounded,      s.bc1,     s.bc2,
          s.unscale,      s.clip,              s.clip_limit};
}

// g: unscaled, then clipped by norm or by value.
RN_HD float gradient_of(float scaled, const Hyper& h) {
  const float g = (scaled * h.unscale) * h.clip;
  const float upper = g > h.clip_limit ? h.clip_limit : g;
  return upper < -h.clip_limit ? -h.clip_limit : upper;
}

// Rules: step(w, m, v, g, h) changes w and the moments it has.

// w = w - (lr*g + (lr*wd)*w), with g = g + l2*w first.
struct Sgd {
  static constexpr int MOMENTS = 0;
  RN_HD static void step(float& w, float&, float&, float g, const Hyper& h) {
    g = g + h.coupled * w;
    w = w - (h.lr * g + h.lr_decay * w);
  }
};

// m = beta*m + g; w = w - (lr*m + (lr*wd)*w).
struct Momentum {
  static constexpr int MOMENTS = 1;
  RN_HD static void step(float& w, float& m, float&, float g, const Hyper& h) {
    g = g + h.coupled * w;
    m = h.b1 * m + g;
    w = w - (h.lr * m + h.lr_decay * w);
  }
};

// The same with beta*m + g, m already new, in place of m.
struct Nesterov {
  static constexpr int MOMENTS = 1;
  RN_HD static void step(float& w, float& m, float&, float g, const Hyper& h) {
    g = g + h.coupled * w;
    m = h.b1 * m + g;
    w = w - (h.lr * (h.b1 * m + g) + h.lr_decay * w);
  }
};

RN_HD float adam_direction(float& m, float& v, float g, const Hyper& h) {
  m = h.b1 * m + h.one_minus_b1 * g;
  v = h.b2 * v + (h.one_minus_b2 * g) * g;
  return (m * h.bc1) / (root(v * h.bc2) + h.eps);
}

// Kingma and Ba 2015, decay coupled: g = g + wd*w; w = w - lr*((m*bc1)/(sqrt(v*bc2) + eps)).
struct Adam {
  static constexpr int MOMENTS = 2;
  RN_HD static void step(float& w, float& m, float& v, float g, const Hyper& h) {
    g = g + h.coupled * w;
    w = w - h.lr * adam_direction(m, v, g, h);
  }
};

// Loshchilov and Hutter 2019: w = w - (lr*((m*bc1)/(sqrt(v*bc2) + eps)) + (lr*wd)*w).
struct AdamW {
  static constexpr int MOMENTS = 2;
  RN_HD static void step(float& w, float& m, float& v, float g, const Hyper& h) {
    w = w - (h.lr * adam_direction(m, v, g, h) + h.lr_decay * w);
  }
};

// You, Gitman, Ginsburg 2017. h.lr is lr*eta of the tensor here.
// g' = g + wd*w; m = beta*m + (lr*eta)*g'; w = w - m.
struct Lars {
  static constexpr int MOMENTS = 1;
  RN_HD static void step(float& w, float& m, float&, float g, const Hyper& h) {
    g = g + h.coupled * w;
    m = h.b1 * m + h.lr * g;
    w = w - m;
  }
};

// w = w - ((lr*eta)*g' + beta*m), m already new.
struct LarsNesterov {
  static constexpr int MOMENTS = 1;
  RN_HD static void step(float& w, float& m, float&, float g, const Hyper& h) {
    g = g + h.coupled * w;
    m = h.b1 * m + h.lr * g;
    w = w - (h.lr * g + h.b1 * m);
  }
};

// eta = tc*|w| / (|g| + wd*|w| + eps) in double, at most 100; 1 when a norm is below 1e-12.
RN_HD float trust_ratio(double w_squares, double g_squares, const Scalars& s, int row) {
  const double w = root(w_squares);
  const double g = root(g_squares);
  if (!(w >= 1e-12) || !(g >= 1e-12)) return 1.0f;
  const double eta = s.trust_coefficient * w / (g + s.coupled[row] * w + s.eps);
  return static_cast<float>(eta < 100.0 ? eta : 100.0);
}

// e = e + (1-d)*(w - e).
RN_HD void average(float& e, float w, float rate) { e = e + rate * (w - e); }

}  // namespace rn
