//! Apply decides: conditions, ranges, fences and deadlines are judged when an entry is applied.
