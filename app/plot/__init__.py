"""Scales, patterns and the thinning of series: what every chart is drawn with; knows no feature."""
