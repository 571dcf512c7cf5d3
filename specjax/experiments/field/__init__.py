"""Recent statements on Muon from outside the five papers, each judged by a small experiment."""
