#include "tensord/common/util/stream_copy.h"

#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace tensord {

void StreamCopy(void* to, const void* from, int64_t bytes) {
#ifdef __SSE2__
  constexpr int64_t kLine = 64;
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  const int64_t head = -reinterpret_cast<intptr_t>(out) & (kLine - 1);
  if (bytes >= head + kLine) {
    std::memcpy(out, in, head);
    out += head;
    in += head;
    bytes -= head;
    for (; bytes >= kLine; bytes -= kLine, out += kLine, in += kLine) {
      const auto* source = reinterpret_cast<const __m128i*>(in);
      auto* target = reinterpret_cast<__m128i*>(out);
      const __m128i a = _mm_loadu_si128(source);
      const __m128i b = _mm_loadu_si128(source + 1);
      const __m128i c = _mm_loadu_si128(source + 2);
      const __m128i d = _mm_loadu_si128(source + 3);
      _mm_stream_si128(target, a);
      _mm_stream_si128(target + 1, b);
      _mm_stream_si128(target + 2, c);
      _mm_stream_si128(target + 3, d);
    }
    _mm_sfence();
  }
  std::memcpy(out, in, bytes);
#else
  std::memcpy(to, from, bytes);
#endif
}

}  // namespace tensord
