"""Streams that are idle do not hold the watermark of a query.

units -> reports of what each stream brought -> rule -> source of control rows -> the watermark of the stream

Spark's watermark is the smallest one of all streams of a query, so a stream that brings nothing stops it for
ever. A stream with ``idle=`` has a second source, whose rows are seen by ``withWatermark`` and by nothing
else. While the stream is idle, this source follows the event times of the other streams.
"""
