"""Claims of papers, a folder each, in the form of `specjax.lab.claim`."""
