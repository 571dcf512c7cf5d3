"""The claims document: fourteen statements on Ortho(G) = G (GᵀG)^(-1/2), judged one by one."""
